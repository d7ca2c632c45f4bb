"""Gnomon for PyTorch: a Transformer's forward pass as fast as this machine can, found by measuring.

    import gnomon
    gnomon.optimize(model)          # model is used as before; state_dict() is the same

Where Gnomon is not certain to compute the same, the module's own forward runs: the logger `gnomon` says so once, and
`print(gnomon.explain(model))` lists it.
"""

from ._adapters import Adapter, Request, Stack, expect_children, plain_class, register_adapter
from ._dropin import Optimized, forward, optimize, refresh, restore
from ._errors import CallerError, EnvironmentError_, GnomonError, InternalError, NotRecognised, expect
from ._explain import Explanation, explain
from ._library import library_path
from ._version import __version__

__all__ = [
    "Adapter",
    "CallerError",
    "EnvironmentError_",
    "Explanation",
    "GnomonError",
    "InternalError",
    "NotRecognised",
    "Optimized",
    "Request",
    "Stack",
    "__version__",
    "expect",
    "expect_children",
    "explain",
    "forward",
    "library_path",
    "optimize",
    "plain_class",
    "refresh",
    "register_adapter",
    "restore",
]
