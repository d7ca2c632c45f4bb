"""torch.nn.TransformerEncoder and torch.nn.TransformerEncoderLayer."""

from __future__ import annotations

from typing import Any, List, Optional

import torch
from torch import nn
from torch.nn import functional as F

from .._errors import expect
from .._masks import additive_padding, is_causal_mask
from ._protocol import Adapter, Request, Stack, expect_children, expect_dropouts, plain_class

_DROPOUTS = ("dropout", "dropout1", "dropout2")
_LAYER_PARTS = ("self_attn", "linear1", "linear2", "norm1", "norm2", *_DROPOUTS)


def activation_name(activation: object) -> str:
    """The library's word for an activation function or module; "?" for any other."""
    if activation in (F.relu, torch.relu) or type(activation) is nn.ReLU:
        return "relu"
    if activation is F.gelu:
        return "gelu"
    if type(activation) is nn.GELU:
        return "gelu_tanh" if activation.approximate == "tanh" else "gelu"
    return "?"


def _add_layer(stack: Stack, n: int, layer: Any) -> None:
    own = f"layers.{n}."
    attention = layer.self_attn
    expect(plain_class(attention) is nn.MultiheadAttention, f"{own}self_attn is a {type(attention).__name__}")
    expect_children(layer, *_LAYER_PARTS, *(["activation"] if isinstance(layer.activation, nn.Module) else []))
    expect_children(attention, "out_proj")
    expect_dropouts(layer, *_DROPOUTS)
    expect(activation_name(layer.activation) == stack.activation, f"{own}activation differs from layer 0's")
    expect(attention.num_heads == stack.n_heads, f"{own}self_attn has another number of heads than layer 0's")
    expect(layer.norm_first == (stack.norm_placement == "pre"), f"{own}norm_first differs from layer 0's")
    expect(attention.batch_first == stack.extra, f"{own}batch_first differs from layer 0's")
    expect(attention.bias_k is None and attention.bias_v is None, f"{own}self_attn has bias_k and bias_v")
    expect(not attention.add_zero_attn, f"{own}self_attn has add_zero_attn")
    expect(attention.in_proj_weight is not None, f"{own}self_attn has projections of other sizes than d_model")
    _add_in_projection(stack, own, attention)
    stack.linear(own + "attn.out_proj", attention.out_proj)
    for part, name in (("fc1", "linear1"), ("fc2", "linear2")):
        stack.linear(own + part, getattr(layer, name))
    for part in ("norm1", "norm2"):
        stack.norm(own + part, getattr(layer, part))


def _add_in_projection(stack: Stack, own: str, attention: Any) -> None:
    """Rows 0..d of the joint projection are the queries', then the keys', then the values'."""
    weight, bias = attention.in_proj_weight, attention.in_proj_bias
    expect(type(weight) is nn.Parameter, f"{own}self_attn.in_proj_weight is a {type(weight).__name__}")
    weights = weight.detach().chunk(3)
    biases = [None] * 3 if bias is None else bias.detach().chunk(3)
    for part, w, b in zip(("q_proj", "k_proj", "v_proj"), weights, biases):
        stack.tensor(f"{own}attn.{part}.weight", w)
        stack.tensor(f"{own}attn.{part}.bias", b)


def _describe(layers: List[Any]) -> Stack:
    first = layers[0]
    for n, layer in enumerate(layers):
        expect(plain_class(layer) is nn.TransformerEncoderLayer, f"layers.{n} is a {type(layer).__name__}")
    activation = activation_name(first.activation)
    expect(activation != "?", f"activation {first.activation!r} is not a ReLU or GELU that we know")
    norm = "pre" if first.norm_first else "post"
    stack = Stack(first.self_attn.num_heads, norm, activation, extra=first.self_attn.batch_first)
    for n, layer in enumerate(layers):
        _add_layer(stack, n, layer)
    return stack


def _bind(
    stack: Stack,
    src: torch.Tensor,
    mask: Optional[torch.Tensor],
    padding: Optional[torch.Tensor],
    is_causal: Optional[bool],
) -> Request:
    batch_first = stack.extra
    expect(src.dim() == 3, f"the input has {src.dim()} axes, not 3")
    batch, seq = (src.shape[0], src.shape[1]) if batch_first else (src.shape[1], src.shape[0])
    causal = False
    if mask is not None:
        causal = is_causal_mask(mask, seq)
        expect(causal or not is_causal, "is_causal with a mask that hides nothing")  # PyTorch 2 obeys the hint
    else:
        expect(not is_causal, "is_causal without a mask")
    valid = None
    if padding is not None:
        expect(
            padding.shape == (batch, seq), f"src_key_padding_mask has shape {list(padding.shape)}, not [{batch}, {seq}]"
        )
        valid = padding.logical_not() if padding.dtype is torch.bool else additive_padding(padding)
    return Request(src, valid, causal, not batch_first)


class TransformerEncoderAdapter(Adapter):
    name = "torch.nn.TransformerEncoder"

    def matches(self, module: Any) -> bool:
        return plain_class(module) is nn.TransformerEncoder

    def describe(self, module: Any) -> Stack:
        expect_children(module, "layers", *(["norm"] if "norm" in module._modules else []))
        expect(plain_class(module.layers) is nn.ModuleList, f"layers is a {type(module.layers).__name__}")
        expect(len(module.layers) > 0, "there is no layer")
        stack = _describe(list(module.layers))
        if module.norm is not None:
            stack.norm("norm", module.norm)
        return stack

    def bind(
        self,
        module: Any,
        stack: Stack,
        src: torch.Tensor,
        mask: Optional[torch.Tensor] = None,
        src_key_padding_mask: Optional[torch.Tensor] = None,
        is_causal: Optional[bool] = None,
    ) -> Request:
        return _bind(stack, src, mask, src_key_padding_mask, is_causal)


class TransformerEncoderLayerAdapter(Adapter):
    name = "torch.nn.TransformerEncoderLayer"

    def matches(self, module: Any) -> bool:
        return plain_class(module) is nn.TransformerEncoderLayer

    def describe(self, module: Any) -> Stack:
        return _describe([module])

    def bind(
        self,
        module: Any,
        stack: Stack,
        src: torch.Tensor,
        src_mask: Optional[torch.Tensor] = None,
        src_key_padding_mask: Optional[torch.Tensor] = None,
        is_causal: bool = False,
    ) -> Request:
        return _bind(stack, src, src_mask, src_key_padding_mask, is_causal)
