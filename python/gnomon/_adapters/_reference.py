"""The suite's reference Transformer (bench/reference.py), wherever its file was copied to: known by its text."""

from __future__ import annotations

import functools
import hashlib
import inspect
from typing import Any, Optional, Tuple

import torch

from .._errors import CallerError, expect
from ._protocol import Adapter, Request, Stack, expect_children, expect_own_code, plain_class

# Of the text of Attention, Layer and Reference: another text may compute something else.
_KNOWN = {"1f65cc3941c2af45504e2163ba4bd7c204bd4ef4789174060566399e2b7c4b38"}


@functools.lru_cache(maxsize=64)
def _text_of(classes: Tuple[type, ...]) -> str:
    try:
        text = "\n".join(inspect.getsource(c).strip() for c in classes)
    except (OSError, TypeError):
        return "unreadable"
    return hashlib.sha256(text.encode()).hexdigest()


class ReferenceAdapter(Adapter):
    name = "suite reference"

    def matches(self, module: Any) -> bool:
        kind = plain_class(module)
        return kind.__name__ == "Reference" and hasattr(module, "config") and hasattr(module, "layers")

    def describe(self, module: Any) -> Stack:
        config = module.config
        layers = list(module.layers)
        expect(layers, "there is no layer")
        classes = {(plain_class(layer.attn), plain_class(layer)) for layer in layers}
        expect(len(classes) == 1, "layers are of several classes")
        kinds = (*classes.pop(), plain_class(module))
        text = _text_of(kinds)
        expect(text in _KNOWN, f"the text of its classes ({text[:12]}) is not that of the suite's reference")
        for kind in kinds:
            expect_own_code(kind)
        expect_children(module, "layers", *(["norm"] if config.final_norm else []))
        activations = vars(inspect.getmodule(plain_class(layers[0])))["ACTIVATIONS"]
        stack = Stack(config.n_heads, config.norm, config.activation, config.causal)
        for n, layer in enumerate(layers):
            expect_children(layer, "attn", "norm1", "norm2", "fc1", "fc2")
            expect_children(layer.attn, "q_proj", "k_proj", "v_proj", "out_proj")
            expect(layer.pre == (config.norm == "pre"), f"layer {n} has another norm placement than the configuration")
            expect(layer.activation is activations[config.activation], f"layer {n} has another activation")
            expect(layer.attn.heads == config.n_heads, f"layer {n} has another number of heads")
            expect(layer.attn.causal == config.causal, f"layer {n} is not as causal as the configuration")
            for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                stack.linear(f"layers.{n}.attn.{part}", getattr(layer.attn, part))
            for part in ("norm1", "norm2"):
                stack.norm(f"layers.{n}.{part}", getattr(layer, part))
            for part in ("fc1", "fc2"):
                stack.linear(f"layers.{n}.{part}", getattr(layer, part))
        if config.final_norm:
            stack.norm("norm", module.norm)
        return stack

    def bind(self, module: Any, stack: Stack, x: torch.Tensor, mask: Optional[torch.Tensor] = None) -> Request:
        if mask is not None:
            _check_mask(x, mask)
        return Request(x, mask)


def _check_mask(x: Any, mask: Any) -> None:
    """The reference would take some of these for something else; a wrong mask is refused before anything runs."""
    wanted = f"expected a mask of shape {list(x.shape[:2])} and type bool on {x.device}, True = valid token"
    if not isinstance(mask, torch.Tensor):
        raise CallerError(f"{wanted}; got a {type(mask).__name__}")
    if mask.dtype is not torch.bool or mask.shape != x.shape[:2] or mask.device != x.device:
        raise CallerError(f"{wanted}; got {list(mask.shape)}, {str(mask.dtype)[6:]}, on {mask.device}")
