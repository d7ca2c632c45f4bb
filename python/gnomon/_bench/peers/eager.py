"""PyTorch run eagerly: the reference as it is, in lower precision, with SDPA in it, and PyTorch's own encoder."""

from __future__ import annotations

import inspect
from typing import Callable, Optional

import torch
from torch import nn
from torch.nn import functional as F

from ..shared import Shape, machine, reference
from ..work import Setting, Work, eager_bytes, lean_bytes
from .peer import HAS_SDPA, NO_SDPA, Peer, Ready, all_cores, module_bytes


class SdpaAttention(reference.Attention):
    """The reference's attention with the scores left to PyTorch."""

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor]) -> torch.Tensor:
        batch, seq, d = x.shape
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        visible = None
        if mask is not None:
            visible = mask[:, None, None, :]
            if self.causal:
                visible = visible & torch.ones(seq, seq, dtype=torch.bool, device=x.device).tril()
        heads = F.scaled_dot_product_attention(q, k, v, attn_mask=visible, is_causal=self.causal and mask is None)
        return self.out_proj(heads.transpose(1, 2).reshape(batch, seq, d))


def with_sdpa(work: Work) -> nn.Module:
    module = work.module_copy()
    for layer in module.layers:
        layer.attn.__class__ = SdpaAttention
    return module


def plain(work: Work) -> nn.Module:
    return work.module_copy()


def encoder(work: Work) -> nn.Module:
    """torch.nn.TransformerEncoder with the same weights."""
    config = work.shape.config
    layer = nn.TransformerEncoderLayer(
        config.d_model,
        config.n_heads,
        config.d_ff,
        dropout=0.0,
        activation=config.activation,
        layer_norm_eps=config.eps,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    stack = nn.TransformerEncoder(layer, config.layers, enable_nested_tensor=False)
    state = {}
    for name, tensor in work.module.state_dict().items():
        _, number, part = name.split(".", 2)
        if part.startswith(("attn.q", "attn.k", "attn.v")):
            continue
        renamed = part.replace("attn.", "self_attn.").replace("fc1", "linear1").replace("fc2", "linear2")
        state[f"layers.{number}.{renamed}"] = tensor
    for number, source in enumerate(work.module.layers):
        for kind in ("weight", "bias"):
            parts = [getattr(p, kind) for p in (source.attn.q_proj, source.attn.k_proj, source.attn.v_proj)]
            state[f"layers.{number}.self_attn.in_proj_{kind}"] = torch.cat(parts).detach()
    stack.load_state_dict(state)
    return stack.to(device=work.setting.device, dtype=work.setting.dtype).eval()


def encoder_arguments(work: Work, module: nn.Module) -> dict:
    arguments = {}
    if work.shape.config.causal:
        seq = work.shape.seq
        arguments["mask"] = torch.ones(seq, seq, dtype=torch.bool, device=work.setting.device).triu(1)
        if "is_causal" in inspect.signature(module.forward).parameters:
            arguments["is_causal"] = True
    if work.mask is not None:
        arguments["src_key_padding_mask"] = ~work.mask
    return arguments


def caller(module: nn.Module, work: Work, precision: str) -> Ready:
    """The module's call in one of the three precisions: f32 (as the work is), autocast, half (all of it)."""
    x, mask, half = work.x, work.mask, work.setting.half
    if isinstance(module, nn.TransformerEncoder):
        arguments = encoder_arguments(work, module)

        def call(x: torch.Tensor) -> torch.Tensor:
            return module(x, **arguments)

    else:

        def call(x: torch.Tensor) -> torch.Tensor:
            return module(x, mask)

    if precision == "half":
        module.to(half)
        x = x.to(half)

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return call(x)

    def run_autocast() -> torch.Tensor:
        with torch.inference_mode(), torch.autocast(work.setting.device.type, dtype=half):
            return call(x)

    notes = [f"input and output in {work.setting.half_name}, converted outside of the timing"] if precision == "half" else []
    return Ready(run_autocast if precision == "autocast" else run, notes)


def _builder(make: Callable[[Work], nn.Module], precision: str) -> Callable[[Work], Ready]:
    return lambda work: caller(make(work), work, precision)


def refuse_precision(precision: str, setting: Setting) -> Optional[str]:
    if precision != "f32" and setting.dtype != torch.float32:
        return f"the module is in {str(setting.dtype)[6:]} already"
    return None


def _refuser(needs_sdpa: bool, precision: str) -> Callable[[Setting], Optional[str]]:
    return lambda setting: NO_SDPA if needs_sdpa and not HAS_SDPA else refuse_precision(precision, setting)


def _lean(shape: Shape, setting: Setting) -> int:
    return lean_bytes(shape, 4) if setting.cuda else eager_bytes(shape, 4)  # the CPU's may store the scores


TITLES = {"f32": "", "autocast": ", 16-bit autocast", "half": ", all 16-bit"}


def _peers(name: str, title: str, make: Callable[[Work], nn.Module], needs_sdpa: bool, bytes_: Callable) -> list:
    return [
        Peer(
            name if precision == "f32" else f"{name}-{precision}",
            title + words,
            _builder(make, precision),
            _refuser(needs_sdpa, precision),
            bytes_,
        )
        for precision, words in TITLES.items()
    ]


def _on_all_cores(work: Work) -> Ready:
    ready = caller(plain(work), work, "f32")
    ready.around = all_cores
    return ready


def _refuse_all_cores(setting: Setting) -> Optional[str]:
    if setting.cuda:
        return "the CPU's alone"
    if torch.get_num_threads() >= machine.cores():
        return f"PyTorch as it comes has {torch.get_num_threads()} threads already"
    return None


_PLAIN = _peers("reference", "PyTorch reference, eager", plain, False, module_bytes)
REFERENCE = _PLAIN[:1]
PEERS = [
    Peer("reference-all-cores", "PyTorch reference, a thread for every core", _on_all_cores, _refuse_all_cores),
    *_peers("sdpa", "PyTorch with SDPA", with_sdpa, True, _lean),
    *_peers("encoder", "torch.nn.TransformerEncoder", encoder, False, _lean),
    *_PLAIN[1:],
]
