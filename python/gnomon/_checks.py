"""What is looked at in a call's tensors before the library may read their memory."""

from __future__ import annotations

from typing import Any

import torch

from ._adapters import Request
from ._adapters._protocol import PLAIN_TENSORS
from ._engine import DTYPES, TAKES_DTYPES
from ._errors import NotRecognised

GRADIENTS = "gradients are wanted: call it under torch.no_grad() or torch.inference_mode() (or freeze the parameters)"


def check_tensor(x: torch.Tensor, graded: bool) -> None:
    """Raises NotRecognised for a tensor that is more, or less, than strided memory; `graded`: gradients are recorded."""
    if type(x) not in PLAIN_TENSORS or x.is_nested or x.layout is not torch.strided or x.is_neg():
        raise NotRecognised(f"an argument is a {_describe(x)}, not a plain strided tensor")
    if graded and x.requires_grad:
        raise NotRecognised(GRADIENTS)


def check_request(request: Request, device: torch.device, padded_rows: str) -> None:
    """Raises NotRecognised unless the library can take the request for an engine whose weights are on `device`."""
    x, mask = request.x, request.mask
    if x.dim() != 3:
        raise NotRecognised(f"the input has {x.dim()} axes, not 3")
    if x.dtype not in DTYPES:
        raise NotRecognised(f"the input is {str(x.dtype)[6:]}; {TAKES_DTYPES}")
    try:
        x.data_ptr()
    except RuntimeError:  # a wrapper, as torch.vmap's before 2.0
        raise NotRecognised("the input has no memory of its own") from None
    if x.device != device:
        raise NotRecognised(f"the input is on {x.device}, the weights are on {device}")
    if mask is not None:
        _check_mask(request, mask)
        if request.own_blind_rows and padded_rows == "computed":
            check_blind_rows(mask, bool(request.causal))


def _check_mask(request: Request, mask: torch.Tensor) -> None:
    """The adapter made it, but of the caller's tensor: the library would read what lies at its address."""
    shape = request.x.shape[:2] if not request.seq_first else (request.x.shape[1], request.x.shape[0])
    if mask.dtype is not torch.bool or mask.shape != shape or mask.device != request.x.device:
        raise NotRecognised(
            f"the padding mask is {list(mask.shape)}, {str(mask.dtype)[6:]}, on {mask.device}; expected "
            f"{list(shape)}, bool, on {request.x.device}"
        )


def check_blind_rows(mask: torch.Tensor, causal: bool) -> None:
    sighted = mask[:, :1] if causal else mask.any(1)
    if not bool(sighted.all()):
        raise NotRecognised(
            "a token sees no valid token, where the module's own answer is another one than Gnomon's; it does not "
            "matter when nobody reads padded rows: padded_rows='any'"
        )


def _describe(x: Any) -> str:
    if type(x) not in PLAIN_TENSORS:
        return type(x).__name__
    if x.is_nested:
        return "nested tensor"
    return f"{x.layout} tensor" if x.layout is not torch.strided else "negated view"
