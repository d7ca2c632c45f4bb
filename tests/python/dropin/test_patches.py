"""Classes and functions that somebody put others in the place of: the module answers for itself."""

import functools
import importlib

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gnomon
from dropin_support import (
    BY_NAME,
    D,
    check,
    check_falls_back,
    encoder,
    fast,
)

PATCHES = [
    (nn.TransformerEncoderLayer, "forward"),
    (nn.TransformerEncoderLayer, "_ff_block"),
    (nn.TransformerEncoder, "forward"),
    (nn.MultiheadAttention, "forward"),
    (nn.Linear, "forward"),
    (nn.LayerNorm, "forward"),
    (nn.Dropout, "forward"),
    (nn.Module, "__call__"),
    (nn.Module, "_call_impl"),
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind, name", PATCHES, ids=lambda p: getattr(p, "__name__", p))
def test_a_patched_class_falls_back(kind, name, when, monkeypatch):
    family = BY_NAME["encoder"]
    torch.manual_seed(0)
    module, x, plain = family.make(), torch.randn(2, 6, D), getattr(kind, name)
    if when == "after":
        gnomon.optimize(module, effort="estimate")
        check(family, module, x)
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, lambda self, *a, **k: plain(self, *a, **k))
        gnomon.optimize(module, effort="estimate")
        check_falls_back(family, module, x, reason=f"nn.{kind.__name__} was patched: {name}")
    check(family, module, x)


@pytest.mark.parametrize("name", gnomon._weights_watch.FUNCTIONS)
def test_a_patched_function_of_pytorch_falls_back(name, monkeypatch):
    """scaled_dot_product_attention above all is put there by packages that bring another one."""
    family, x, plain = BY_NAME["encoder"], torch.randn(2, 6, D), getattr(F, name)
    module = gnomon.optimize(encoder(activation=nn.GELU()), effort="estimate")
    check(family, module, x)
    with monkeypatch.context() as patch:
        patch.setattr(F, name, lambda *a, **k: plain(*a, **k))
        check_falls_back(family, module, x, reason=f"torch.nn.functional was patched: {name}")
    check(family, module, x)


def halved(plain):
    return lambda self, *a, **k: plain(self, *a, **k) * 0.5


def halved_and_disguised(plain):
    return functools.wraps(plain)(halved(plain))


def without_values(plain):
    return lambda self, query, key, value, *a, **k: plain(self, query, key, value * 0, *a, **k)


# family, where the class is, its name, the method, what is put there
OTHERS_PATCHES = [
    ("bert", "transformers.models.bert.modeling_bert", "BertSelfOutput", "forward", halved),
    ("bert", "transformers.models.bert.modeling_bert", "BertLayer", "feed_forward_chunk", halved_and_disguised),
    ("gpt2", "transformers.models.gpt2.modeling_gpt2", "GPT2MLP", "forward", halved),
    ("gpt2", "transformers.models.gpt2.modeling_gpt2", "GPT2Attention", "_attn", without_values),
    ("gpt2", "transformers.pytorch_utils", "Conv1D", "forward", halved),
    ("reference-causal", "reference", "Layer", "feed_forward", halved),
    ("reference-causal", "reference", "Attention", "split", halved),
]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("patch_of", OTHERS_PATCHES, ids=lambda p: f"{p[2]}.{p[3]}")
def test_a_patched_class_of_another_package_falls_back(patch_of, when, monkeypatch):
    family_name, path, kind_name, name, change = patch_of
    family = BY_NAME[family_name]
    torch.manual_seed(0)
    module, x, kind = family.make(), torch.randn(2, 6, D), getattr(importlib.import_module(path), kind_name)
    if when == "after":
        gnomon.optimize(module, effort="estimate")
        check(family, module, x)
    with monkeypatch.context() as patch:
        patch.setattr(kind, name, change(getattr(kind, name)))
        gnomon.optimize(module, effort="estimate")
        check_falls_back(family, module, x, reason=f"{kind_name} was patched: {name}")
    check(family, module, x)


def test_another_function_in_an_activation_of_transformers():
    family = BY_NAME["bert"]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    module.layer[1].intermediate.intermediate_act_fn.act = torch.tanh
    check_falls_back(family, module, x, reason="GELUActivation has another function in it")
