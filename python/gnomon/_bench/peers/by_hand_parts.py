"""The operators of the pass by hand, each in the best form that this machine and PyTorch offer."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch
from torch import nn
from torch.nn import functional as F

from ..shared import reference
from ..work import Setting
from .peer import HAS_SDPA


class Packed:
    """A layer's weights as the pass wants them: Q, K and V in one, products in one type, norms in fp32."""

    def __init__(self, layer: nn.Module, dtype: torch.dtype):
        def packed(*tensors: torch.Tensor) -> torch.Tensor:
            return torch.cat([t.detach() for t in tensors]).to(dtype)

        attn = layer.attn
        projections = attn.q_proj, attn.k_proj, attn.v_proj
        self.qkv_weight, self.qkv_bias = packed(*[p.weight for p in projections]), packed(*[p.bias for p in projections])
        self.out_weight, self.out_bias = packed(attn.out_proj.weight), packed(attn.out_proj.bias)
        self.up_weight, self.up_bias = packed(layer.fc1.weight), packed(layer.fc1.bias)
        self.down_weight, self.down_bias = packed(layer.fc2.weight), packed(layer.fc2.bias)
        self.norm1, self.norm2 = [
            (norm.weight.detach().float(), norm.bias.detach().float()) for norm in (layer.norm1, layer.norm2)
        ]


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool, bias: Optional[torch.Tensor]
) -> torch.Tensor:
    if HAS_SDPA:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)
    batch, heads, seq, size = q.shape
    q, k, v = (t.reshape(batch * heads, seq, size) for t in (q, k, v))
    scale = size**-0.5
    if bias is None:
        scores = torch.bmm(q * scale, k.transpose(1, 2))
    else:  # the mask costs no pass of its own
        scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
    return torch.bmm(scores.softmax(-1), v).view(batch, heads, seq, size)


def feed_forward_up(h: torch.Tensor, layer: Packed, activation: str) -> torch.Tensor:
    # cuBLASLt's epilogue knows the tanh form alone. PyTorch's function is private; without it GELU is a pass of its own.
    epilogue = getattr(torch, "_addmm_activation", None)
    if h.is_cuda and epilogue is not None and activation in ("gelu", "gelu_tanh"):
        return epilogue(layer.up_bias, h, layer.up_weight.t(), use_gelu=True)
    return reference.ACTIVATIONS[activation](F.linear(h, layer.up_weight, layer.up_bias))


class Norms:
    """norm(residual + y): the new residual in fp32, and the same in the products' type."""

    def __init__(self, setting: Setting, dtype: torch.dtype, eps: float):
        self.dtype, self.eps = dtype, eps
        self.notes: List[str] = []
        self._fused: Any = None
        if setting.cuda:
            try:
                from .triton_norm import add_norm

                self._fused = add_norm
            except Exception as error:  # Triton may be missing, or not fit this PyTorch
                self.notes.append(f"residual and LayerNorm without Triton ({type(error).__name__}: {error})")

    def __call__(
        self, residual: torch.Tensor, y: torch.Tensor, norm: Tuple[torch.Tensor, torch.Tensor]
    ) -> Tuple[torch.Tensor, torch.Tensor]:
        weight, bias = norm
        if self._fused is not None:
            return self._fused(residual, y, weight, bias, self.eps)
        normed = F.layer_norm(residual + y, weight.shape, weight, bias, self.eps)
        return normed, normed.to(self.dtype)
