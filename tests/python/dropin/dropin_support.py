"""Modules of every family that the drop-in knows, all called one way: family.call(module, x, valid)."""

import copy
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

import torch
from torch import nn
from torch.nn import functional as F

import contract
import gnomon
from reference import Reference
from stack_config import StackConfig

ROOT = Path(__file__).resolve().parents[3]
QUICK = {"effort": "estimate", "budget": 0.2}
D, HEADS, FFN, LAYERS = 32, 4, 64, 2


@dataclass(frozen=True)
class Family:
    name: str
    make: Callable[[], nn.Module]
    call: Callable  # (module, x [B, S, d], valid [B, S] bool or None) -> [B, S, d]
    causal: bool = False
    own_blind_rows: bool = False  # the module's own answer where nothing is visible is kept, by falling back
    marks: tuple = field(default=())

    def __str__(self):
        return self.name


def randomise(module: nn.Module) -> nn.Module:
    """Ones and zeros would hide a swapped or forgotten parameter."""
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            is_norm_weight = "norm" in name.lower() or ".ln_" in name or name.startswith("ln_")
            nn.init.normal_(parameter, mean=float(is_norm_weight and name.endswith("weight")), std=0.2)
    return module.eval()


def reference(**changes) -> nn.Module:
    return randomise(
        Reference(StackConfig(**{"layers": LAYERS, "d_model": D, "n_heads": HEADS, "d_ff": FFN, **changes}))
    )


def encoder(layers=LAYERS, final_norm=False, d=D, heads=HEADS, ffn=FFN, **changes) -> nn.Module:
    layer = nn.TransformerEncoderLayer(d, heads, ffn, **{"activation": "gelu", "batch_first": True, **changes})
    norm = nn.LayerNorm(d) if final_norm else None
    return randomise(nn.TransformerEncoder(layer, layers, norm))


def encoder_layer(**changes) -> nn.Module:
    return encoder(layers=1, **changes).layers[0]


def bert_encoder(**changes) -> nn.Module:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertEncoder

    sizes = {"hidden_size": D, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": FFN}
    return randomise(BertEncoder(BertConfig(**{**sizes, **changes})))


def gpt2(**changes) -> nn.Module:
    from transformers import GPT2Config, GPT2Model

    sizes = {"n_embd": D, "n_layer": LAYERS, "n_head": HEADS, "n_inner": FFN, "n_positions": 64, "vocab_size": 50}
    return randomise(GPT2Model(GPT2Config(**{**sizes, **changes})))


def call_reference(module, x, valid=None):
    return module(x, valid)


def call_encoder(module, x, valid=None):
    return module(x, src_key_padding_mask=None if valid is None else ~valid)


def call_seq_first(module, x, valid=None):
    padding = None if valid is None else ~valid
    return module(x.transpose(0, 1), src_key_padding_mask=padding).transpose(0, 1)


def call_bert(module, x, valid=None):
    mask = None
    if valid is not None:
        mask = (~valid)[:, None, None, :].to(x.dtype) * torch.finfo(x.dtype).min
    return module(x, attention_mask=mask).last_hidden_state


def call_gpt2(module, x, valid=None):
    mask = None if valid is None else valid.long()
    return module(inputs_embeds=x, attention_mask=mask, use_cache=False).last_hidden_state


FAMILIES = [
    Family("reference-causal", reference, call_reference, causal=True),
    Family(
        "reference-pre", lambda: reference(norm="pre", causal=False, final_norm=True, activation="relu"), call_reference
    ),
    Family("encoder", encoder, call_encoder),
    Family(
        "encoder-pre-seq-first", lambda: encoder(norm_first=True, batch_first=False, final_norm=True), call_seq_first
    ),
    Family("layer", lambda: encoder_layer(activation=F.relu), call_encoder),
    Family("bert", bert_encoder, call_bert, own_blind_rows=True),
    Family("gpt2", gpt2, call_gpt2, causal=True, own_blind_rows=True),
]
BY_NAME = {family.name: family for family in FAMILIES}
FEW = [FAMILIES[0], FAMILIES[3]]  # where the kind of module cannot matter


def entry(module: nn.Module) -> dict:
    (one,) = gnomon.explain(module).as_dict()["modules"]
    return one


def reasons(module: nn.Module) -> list:
    return [fallback["reason"] for fallback in entry(module)["fallbacks"]]


def own_answer(family: Family, module: nn.Module, x, valid=None) -> torch.Tensor:
    """The module's own forward as it is without Gnomon. With gradients, which keeps PyTorch off its fast path: that one
    leaves padded rows out, and the plain one is what the contract is about."""
    plain = gnomon.restore(copy.deepcopy(module))
    with torch.enable_grad():
        for parameter in plain.parameters():
            parameter.requires_grad_(True)
        return family.call(plain, x, valid).detach()


def assert_in_contract(actual: torch.Tensor, expected: torch.Tensor, where: str = "") -> None:
    assert actual.shape == expected.shape and actual.dtype == expected.dtype
    verdict = contract.compare(actual.float().numpy(), expected.float().numpy())
    assert verdict.holds, f"{where}: {verdict}"


def assert_in_contract_but_for_its_rounding(actual: torch.Tensor, expected: torch.Tensor, slack: float = 0.0) -> None:
    """A 16-bit answer against an fp32 one: no stored result can be nearer than half a step. `slack`: of the input's own."""
    assert actual.shape == expected.shape and actual.dtype in (torch.float16, torch.bfloat16)
    step = torch.finfo(actual.dtype).eps
    error = (actual.float() - expected).abs() - expected.abs() * step / 2 - slack
    assert ((error <= 0.002) | (error <= 0.02 * expected.abs())).all(), f"worst {error.max()}"


def fast(family: Family, seed: int = 0, **options) -> nn.Module:
    """A new module of the family, optimized."""
    torch.manual_seed(seed)
    return gnomon.optimize(family.make(), **{**QUICK, **options})


def check(family: Family, module: nn.Module, x, valid=None, rows=None) -> torch.Tensor:
    """Gnomon answers this call, and the answer meets the contract against the module's own (in these rows)."""
    before, told = entry(module)["answered"], reasons(module)
    with torch.inference_mode():
        actual = family.call(module, x, valid)
    assert reasons(module) == told and entry(module)["answered"] == before + 1, reasons(module)
    expected = own_answer(family, module, x, valid)
    assert_in_contract(
        actual if rows is None else actual[rows], expected if rows is None else expected[rows], str(family)
    )
    return actual


def check_falls_back(family: Family, module: nn.Module, x, valid=None, reason: str = "") -> str:
    """The module's own forward answers, to the bit, and says why."""
    before = entry(module)["answered"]
    plain = gnomon.restore(copy.deepcopy(module))
    with torch.no_grad():
        actual, expected = family.call(module, x, valid), family.call(plain, x, valid)
    assert entry(module)["answered"] == before, "Gnomon answered"
    assert actual.shape == expected.shape and ((actual == expected) | (actual.isnan() & expected.isnan())).all()
    told = reasons(module)[-1]
    assert reason in told, f"expected a reason with {reason!r}, got {told!r}"
    return told


def ragged(batch: int, seq: int, seed: int = 0) -> torch.Tensor:
    """Right padding, every length at least 1."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, seq + 1, (batch,), generator=generator)
    return torch.arange(seq)[None, :] < lengths[:, None]


def run_python(code: str, *arguments: str, path: str = str(ROOT / "python"), **variables: str):
    environment = {**os.environ, "PYTHONPATH": path, **variables}
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, cwd="/")
