"""What masks of other conventions mean: which are exactly causal, which additive ones are exactly a padding mask."""

from __future__ import annotations

import weakref
from typing import Any, Dict, Optional, Tuple

import torch

from ._errors import expect

_KEPT = 64
# id -> (the mask, its version, address and strides, what it is); the weak reference tells a reused id from the mask itself.
_seen: Dict[int, Tuple["weakref.ref[torch.Tensor]", Tuple[Any, ...], str]] = {}


def is_causal_mask(mask: torch.Tensor, seq: int) -> bool:
    """True for an exactly causal [S, S] mask, False for one that hides nothing; raises NotRecognised for any other.

    Boolean (True = hidden) or floating (0 and -inf). The verdict is kept for the tensor as it is.
    """
    expect(mask.shape == (seq, seq), f"the attention mask has shape {list(mask.shape)}, not [{seq}, {seq}]")
    seen = _seen.get(id(mask))
    state = None if mask.is_inference() else (mask._version, mask.data_ptr(), mask.stride())
    if seen is not None and seen[0]() is mask and seen[1] == state:
        kind = seen[2]
    else:
        kind = _kind(mask, seq)
        if state is not None:
            if len(_seen) >= _KEPT:
                _seen.clear()
            _seen[id(mask)] = weakref.ref(mask), state, kind
    expect(kind != "other", "the attention mask is not exactly causal")
    return kind == "causal"


def forget() -> None:
    _seen.clear()


def _kind(mask: torch.Tensor, seq: int) -> str:
    if mask.dtype is torch.bool:
        hidden = mask
    elif mask.is_floating_point():
        hidden = mask == float("-inf")
        if not bool((hidden | (mask == 0)).all()):
            return "other"
    else:
        return "other"
    if not bool(hidden.any()):
        return "none"
    future = torch.ones(seq, seq, dtype=torch.bool, device=mask.device).triu(1)
    return "causal" if torch.equal(hidden, future) else "other"


def additive_padding(mask: torch.Tensor, lowest: Optional[float] = None) -> torch.Tensor:
    """True where a floating mask holds 0; raises NotRecognised unless all else is -inf (or `lowest`)."""
    expect(mask.is_floating_point(), f"the padding mask is {str(mask.dtype)[6:]}, not bool or floating")
    valid = mask == 0
    hidden = mask == float("-inf")
    if lowest is not None:
        hidden = hidden | (mask == lowest)
    expect(bool((valid | hidden).all()), "the padding mask holds more than 0 and one lowest value")
    return valid
