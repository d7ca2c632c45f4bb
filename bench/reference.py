"""The plain Transformer stack in PyTorch: the baseline and the oracle, with the defects of a straightforward module.

Scores are stored, masks are applied by masked_fill, the softmax is taken in fp32, Q, K and V are three products, and
every sublayer boundary is a pass of its own. Beyond that it obeys the same rules on masks as Gnomon: padded keys count
nothing, whatever they hold, and a query with no visible key gets attention output 0.
"""

from __future__ import annotations  # Python 3.9: the wheel's bench runs this file too

import torch
from torch import nn
from torch.nn import functional as F

from stack_config import StackConfig

ACTIVATIONS = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": F.relu,
}


class Attention(nn.Module):
    def __init__(self, config: StackConfig):
        super().__init__()
        d = config.d_model
        self.heads, self.causal = config.n_heads, config.causal
        self.q_proj = nn.Linear(d, d, bias=config.bias)
        self.k_proj = nn.Linear(d, d, bias=config.bias)
        self.v_proj = nn.Linear(d, d, bias=config.bias)
        self.out_proj = nn.Linear(d, d, bias=config.bias)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, d = x.shape
        return x.view(batch, seq, self.heads, d // self.heads).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        batch, seq, d = x.shape
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        scores = q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5
        if self.causal:
            future = torch.ones(seq, seq, dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        if mask is not None:
            scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(x.dtype)
        if mask is not None:
            blind = torch.isneginf(scores).all(-1, keepdim=True)
            weights = weights.masked_fill(blind, 0.0)
            v = v.masked_fill(~mask[:, None, :, None], 0.0)  # 0 * NaN would be NaN
        heads = (weights @ v).transpose(1, 2).reshape(batch, seq, d)
        return self.out_proj(heads)


class Layer(nn.Module):
    def __init__(self, config: StackConfig):
        super().__init__()
        self.pre = config.norm == "pre"
        self.activation = ACTIVATIONS[config.activation]
        self.attn = Attention(config)
        self.norm1 = nn.LayerNorm(config.d_model, eps=config.eps)
        self.norm2 = nn.LayerNorm(config.d_model, eps=config.eps)
        self.fc1 = nn.Linear(config.d_model, config.d_ff, bias=config.bias)
        self.fc2 = nn.Linear(config.d_ff, config.d_model, bias=config.bias)

    def feed_forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.activation(self.fc1(x)))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        if self.pre:
            x = x + self.attn(self.norm1(x), mask)
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attn(x, mask))
        return self.norm2(x + self.feed_forward(x))


class Reference(nn.Module):
    """x: [B, S, d_model]; mask: [B, S] boolean, True = valid token."""

    def __init__(self, config: StackConfig):
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        if config.final_norm:
            self.norm = nn.LayerNorm(config.d_model, eps=config.eps)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x, mask)
        return self.norm(x) if self.config.final_norm else x
