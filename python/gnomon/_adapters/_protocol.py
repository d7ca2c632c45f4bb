"""What an adapter says about a module and about a call: the public protocol, and the helpers that keep one short."""

from __future__ import annotations

import inspect
import os
import sys
import types
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from .._engine import DTYPES, TAKES_DTYPES
from .._errors import NotRecognised, expect

PLAIN_TENSORS = (torch.Tensor, nn.Parameter)  # another class may mean something else by the memory it has
_ACTIVATIONS = ("gelu", "gelu_tanh", "relu")
# What a class body may hold without changing what an instance computes.
_HARMLESS = {
    "__module__", "__doc__", "__qualname__", "__annotations__", "__init__", "__repr__", "__static_attributes__",
    "__firstlineno__", "__weakref__", "__dict__", "__parameters__", "__orig_bases__", "__abstractmethods__", "_abc_impl",
    "__annotate__", "__slotnames__", "__annotate_func__", "__annotations_cache__", "gnomon_options", "extra_repr",
}  # fmt: skip

_LEAVES = (nn.MultiheadAttention, nn.Linear, nn.LayerNorm, nn.Dropout, nn.Identity, nn.GELU, nn.ReLU)
# PyTorch's functions that an answer goes through; a class that has others in their place is another class.
_CODE = {
    (kind, name): getattr(kind, name)
    for kind, names in (
        (nn.TransformerEncoder, ("forward",)),
        (nn.TransformerEncoderLayer, ("forward", "_sa_block", "_ff_block")),
        (nn.Module, ("__call__", "_call_impl")),
        *((kind, ("forward",)) for kind in _LEAVES),
    )
    for name in names
}


class Stack:
    """The structure of a module and where its weights lie, in the library's terms.

    n_heads   attention heads; d_model must be a multiple
    norm      "post": x = norm(x + f(x)); "pre": x = x + f(norm(x))
    activation "gelu" (erf), "gelu_tanh" or "relu"
    causal    whether query i sees keys 0..i only; a Request may say otherwise for its call
    parts     the modules whose own forward does not run while Gnomon answers; default: all inside the module. Given, the
              others may run in `bind`, which is asked once for each call then, so that hooks of theirs fire once
    extra     anything the adapter wants to find again in `bind`
    """

    def __init__(
        self,
        n_heads: int,
        norm: str,
        activation: str,
        causal: bool = False,
        parts: Optional[Sequence[nn.Module]] = None,
        extra: Any = None,
    ):
        expect(norm in ("post", "pre"), f"norm placement is {norm!r}, not 'post' or 'pre'")
        expect(activation in _ACTIVATIONS, f"activation {activation!r} is none of {', '.join(_ACTIVATIONS)}")
        self.n_heads, self.norm_placement, self.activation, self.causal = n_heads, norm, activation, causal
        self.parts, self.extra = parts, extra
        self.tensors: Dict[str, torch.Tensor] = {}
        self._eps: Dict[str, float] = {}

    def tensor(self, name: str, tensor: Optional[torch.Tensor]) -> None:
        """One weight by its name in the library: layers.N.attn.{q_proj,k_proj,v_proj,out_proj}, layers.N.{norm1,norm2,
        fc1,fc2} or norm, then .weight ([out, in] for projections) or .bias. None: there is none.

        A parameter or buffer of the module, a view of one, or made of them here: changes of no other tensor are seen."""
        if tensor is None:
            return
        expect(type(tensor) in PLAIN_TENSORS, f"{name} is a {type(tensor).__name__}, not a plain tensor")
        expect(tensor.layout is torch.strided, f"{name} is {tensor.layout}, not strided")
        expect(tensor.dtype in DTYPES, f"{name} is {str(tensor.dtype)[6:]}; {TAKES_DTYPES}")
        self.tensors[name] = tensor

    def linear(self, name: str, module: Any) -> None:
        """A plain nn.Linear."""
        expect(plain_class(module) is nn.Linear, f"{name} is a {type(module).__name__}, not an nn.Linear")
        self.tensor(name + ".weight", module.weight)
        self.tensor(name + ".bias", module.bias)

    def norm(self, name: str, module: Any) -> None:
        """A plain nn.LayerNorm over the last axis, with weights; all of a stack share one eps."""
        expect(plain_class(module) is nn.LayerNorm, f"{name} is a {type(module).__name__}, not an nn.LayerNorm")
        expect(len(module.normalized_shape) == 1, f"{name} is over {len(module.normalized_shape)} axes, not one")
        expect(module.weight is not None, f"{name} has no weight")
        self.tensor(name + ".weight", module.weight)
        self.tensor(name + ".bias", module.bias)
        self._eps[name] = module.eps

    @property
    def device(self) -> torch.device:
        return next(iter(self.tensors.values())).device

    @property
    def d_model(self) -> int:
        return self.tensors["layers.0.attn.q_proj.weight"].shape[1]

    def config(self, causal: bool) -> str:
        """The configuration's part of the problem grammar. Raises NotRecognised when the parts do not fit together."""
        names = self.tensors
        expect("layers.0.attn.q_proj.weight" in names and "layers.0.fc1.weight" in names, "there is no layer")
        expect(len(set(self._eps.values())) == 1, f"LayerNorms have different eps: {sorted(set(self._eps.values()))}")
        expect(len({t.device for t in names.values()}) == 1, "weights are on several devices")
        expect(self.d_model % self.n_heads == 0, f"d_model {self.d_model} is no multiple of {self.n_heads} heads")
        layers = 1 + max(int(name.split(".")[1]) for name in names if name.startswith("layers."))
        d_ff = names["layers.0.fc1.weight"].shape[0]
        self._expect_alike(layers)
        words = [f"d{self.d_model}", f"h{self.n_heads}", f"l{layers}", f"ff{d_ff}", "causal" if causal else "bi"]
        words += [self.norm_placement, self.activation]
        words += [] if "layers.0.attn.q_proj.bias" in names else ["nobias"]
        words += ["finalnorm"] if "norm.weight" in names else []
        return " ".join([*words, f"eps={float(next(iter(self._eps.values())))!r}"])

    def places(self) -> List[Any]:
        """Where each weight lies: of the same memory, the same weights."""
        return [(name, t.data_ptr(), t.shape, t.stride(), t.dtype) for name, t in self.tensors.items()]

    def _expect_alike(self, layers: int) -> None:
        def shapes(n: int) -> Dict[str, torch.Size]:
            start = f"layers.{n}."
            return {name[len(start) :]: t.shape for name, t in self.tensors.items() if name.startswith(start)}

        for n in range(1, layers):
            expect(shapes(n) == shapes(0), f"layer {n} has other weights or sizes than layer 0")


class Request:
    """One call in the library's terms.

    x          [B, S, d_model], or [S, B, d_model] with seq_first
    make_x     makes x instead, where modules inside run for that: called when the mask is no reason to fall back, so that
               they run once, whoever answers
    mask       [B, S] bool, True = valid token, or None
    causal     None: as the stack says
    finish     makes the module's answer of the stack's output; default: the output itself
    own_blind_rows  the module's own answer at a token that sees no valid token is another one than Gnomon's (whose
               attention output is 0 there): with such a token the module answers, unless padded_rows is "any"
    """

    __slots__ = ("x", "mask", "causal", "seq_first", "finish", "own_blind_rows", "make_x", "engine", "unwatched_by")

    def __init__(
        self,
        x: Any,
        mask: Optional[torch.Tensor] = None,
        causal: Optional[bool] = None,
        seq_first: bool = False,
        finish: Optional[Callable[[torch.Tensor], Any]] = None,
        own_blind_rows: bool = False,
        make_x: Optional[Callable[[], torch.Tensor]] = None,
    ):
        self.x, self.mask, self.causal, self.seq_first = x, mask, causal, seq_first
        self.finish, self.own_blind_rows, self.make_x = finish, own_blind_rows, make_x
        # Set by what runs the request:
        self.engine: Any = None
        self.unwatched_by: Any = None  # the watch that is asked only when the call is launched


class Adapter:
    """Translates one family of modules. Subclass it, and give an instance to `gnomon.register_adapter`.

    `describe` and `bind` raise NotRecognised (most simply through `gnomon.expect(condition, reason)`) for whatever is not
    exactly what the library computes; the module's own forward answers then, and the reason is logged once.
    """

    name = "?"

    def matches(self, module: Any) -> bool:
        """Is this module of the family? Asked once, cheap, and without looking inside."""
        raise NotImplementedError

    def describe(self, module: Any) -> Stack:
        """The module's structure and weights. Asked again whenever anything of the module changed. The stack must not
        hold the module itself, which would keep it alive for ever. Hooks, training mode and parametrizations are looked at
        without it, the class of a submodule that it does not hand to the stack (a dropout, an activation) is not."""
        raise NotImplementedError

    def bind(self, module: Any, stack: Stack, *args: Any, **kwargs: Any) -> Request:
        """One call. Give it the parameters of the module's own forward after `module` and `stack`. It is on every
        call's way, so it should be short. On a device it is asked twice for a call that was launched with weights that turn
        out to have changed."""
        raise NotImplementedError


def plain_class(module: Any) -> type:
    """The class whose code computes: subclasses that add no more than a constructor and documentation do not count,
    and neither do gnomon.Optimized and what gnomon.optimize() makes of a class."""
    return next(kind for kind in type(module).__mro__ if not _is_harmless(kind))


def _is_harmless(kind: type) -> bool:
    return "_gnomon_transparent" in vars(kind) or vars(kind).keys() <= _HARMLESS


def expect_children(module: Any, *names: str) -> None:
    """Raises NotRecognised unless the module has exactly these submodules."""
    have, want = set(module._modules), set(names)
    for extra in sorted(have - want):
        raise NotRecognised(f"{type(module).__name__} has an extra submodule `{extra}`")
    for missing in sorted(want - have):
        raise NotRecognised(f"{type(module).__name__} has no submodule `{missing}`")


def expect_dropouts(module: Any, *names: str) -> None:
    """Raises NotRecognised unless these submodules do nothing in evaluation mode."""
    for name in names:
        part = getattr(module, name)
        expect(
            plain_class(part) in (nn.Dropout, nn.Identity),
            f"{type(module).__name__}.{name} is a {type(part).__name__}, not an nn.Dropout",
        )


def expect_untouched(parts: Sequence[nn.Module], names: Callable[[nn.Module], str]) -> None:
    """Raises NotRecognised when a part would do more, or something else, than its class's code in evaluation mode."""
    from .._weights_watch import FUNCTIONS, hooks_of

    for (kind, name), code in _CODE.items():
        expect(getattr(kind, name) is code, f"nn.{kind.__name__} was patched: {name}")
    for name, function in FUNCTIONS.items():
        expect(getattr(F, name) is function, f"torch.nn.functional was patched: {name}")
    for part in parts:
        expect(not part.training, f"{names(part)} is in training mode")
        expect(not any(hooks_of(part)), f"{names(part)} has hooks")
        expect("parametrizations" not in part._modules, f"{names(part)} has parametrizations")
        overrides = overridden(part)
        expect(not overrides, f"{names(part)} has methods of its own: {', '.join(overrides)}")


def expect_own_code(kind: type) -> None:
    """Raises NotRecognised when a method of the class is not from the package (or, outside of one, the file) that the class is
    from: somebody put it there. Not for classes whose methods have decorators from elsewhere."""
    place = inspect.getsourcefile(kind) or ""
    package = sys.modules.get(kind.__module__.partition(".")[0])
    if "." in kind.__module__ and package is not None and package.__file__:
        place = os.path.dirname(package.__file__) + os.sep
    for own in (k for k in kind.__mro__ if k.__module__ == kind.__module__):
        for name, method in vars(own).items():
            if callable(method) and not isinstance(method, type) and not name.startswith(("__", "_init")):
                code = getattr(method, "__code__", None)
                expect(
                    code is not None and code.co_filename.startswith(place), f"{own.__name__} was patched: {name}"
                )


def overridden(part: nn.Module) -> List[str]:
    """Methods of the class that the object has others of."""
    kind = type(part)
    functions = (types.FunctionType, types.MethodType)
    return [name for name in vars(part) if isinstance(getattr(kind, name, None), functions)]
