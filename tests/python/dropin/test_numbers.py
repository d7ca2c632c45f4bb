"""Numbers: large inputs, reduced precision inside the contract, 16-bit inputs and modules, and random stacks of all kinds."""

import os
import random

import pytest
import torch
from torch import nn

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    FEW,
    Family,
    assert_in_contract_but_for_its_rounding,
    bert_encoder,
    call_bert,
    call_encoder,
    call_gpt2,
    call_reference,
    call_seq_first,
    check,
    encoder,
    entry,
    fast,
    gpt2,
    own_answer,
    ragged,
    reference,
)

families = pytest.mark.parametrize("family", FAMILIES, ids=str)


@families
def test_a_plan_made_on_a_benign_input_holds_for_larger_ones(family):
    """C12, with plans that were measured and may be of a lower precision."""
    module = fast(family, effort="measure", budget=0.3)
    x = torch.randn(4, 16, D)
    for scale in (1, 10, 100, 3e4):
        check(family, module, x * scale)


def test_a_huge_bias():
    family = FEW[0]
    module = fast(family, effort="measure", budget=0.3)
    x = torch.randn(4, 16, D)
    check(family, module, x)
    with torch.no_grad():
        module.layers[0].fc2.bias[3] = 7e4
    check(family, module, x)


def precision_of(module) -> str:
    (problem,) = entry(module)["problems"]
    return next(word for word in problem["winner"].split() if word.startswith("precision="))


def test_fp32_only_and_force_are_options():
    """C13: the plan names its precision; so does the text for people."""
    module = fast(FEW[0], fp32_only=True, effort="measure", budget=0.2, plan_dir=None)
    check(FEW[0], module, torch.randn(4, 16, D))
    assert precision_of(module) == "precision=fp32" and "precision=fp32" in str(gnomon.explain(module))
    module = fast(FEW[0], force={"slices": 2, "fused_qkv": False}, plan_dir=None)
    check(FEW[0], module, torch.randn(4, 16, D))
    assert {"slices=2", "fused_qkv=off"} <= set(entry(module)["problems"][0]["winner"].split())


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name != "gpt2"], ids=str)  # adds fp32 positions to it
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_inputs_of_an_fp32_module(family, dtype):
    """The answer has the input's type. PyTorch's own modules take one type only, so the fp32 answer is the yardstick."""
    module, x, valid = fast(family), torch.randn(3, 10, D).to(dtype), ragged(3, 10)
    with torch.inference_mode():
        actual = family.call(module, x, valid)
    assert actual.dtype is dtype and entry(module)["answered"] == 1
    assert_in_contract_but_for_its_rounding(actual, own_answer(family, module, x.float(), valid))


@families
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bit_modules_are_computed_from_their_weights_in_fp32(family, dtype):
    module, x = fast(family).to(dtype), torch.randn(3, 10, D).to(dtype)
    with torch.inference_mode():
        actual = family.call(module, x, None)
    assert actual.dtype is dtype and entry(module)["answered"] == 1
    twin = gnomon.restore(module).float()
    slack = 0.02 if family.name == "gpt2" else 0.0  # adds its positions in its own 16 bits before Gnomon sees the input
    assert_in_contract_but_for_its_rounding(actual, own_answer(family, twin, x.float()), slack)


def random_family(dice: random.Random) -> Family:
    kind = dice.choice(["reference", "encoder", "seq_first", "bert", "gpt2"])
    heads = dice.choice([1, 2, 3, 4])
    d, layers, ffn = heads * dice.choice([2, 3, 8, 13]), dice.choice([1, 2, 3]), dice.choice([5, 16, 32, 70])
    eps = dice.choice([1e-5, 1e-12, 1e-3])
    if kind == "reference":
        config = {"layers": layers, "d_model": d, "n_heads": heads, "d_ff": ffn, "eps": eps}
        config |= {"norm": dice.choice(["post", "pre"]), "activation": dice.choice(["gelu", "gelu_tanh", "relu"])}
        config |= {k: dice.random() < 0.5 for k in ("causal", "bias", "final_norm")}
        return Family(f"{kind} {config}", lambda: reference(**config), call_reference, causal=config["causal"])
    if kind == "bert":
        config = {"hidden_size": d, "num_attention_heads": heads, "num_hidden_layers": layers, "intermediate_size": ffn}
        config |= {"hidden_act": dice.choice(["gelu", "gelu_new", "relu"]), "layer_norm_eps": eps}
        return Family(f"{kind} {config}", lambda: bert_encoder(**config), call_bert)
    if kind == "gpt2":
        config = {"n_embd": d, "n_head": heads, "n_layer": layers, "n_inner": ffn, "layer_norm_epsilon": eps}
        config |= {"activation_function": dice.choice(["gelu", "gelu_new", "relu"])}
        return Family(f"{kind} {config}", lambda: gpt2(**config), call_gpt2, causal=True)
    config = {"layers": layers, "d": d, "heads": heads, "ffn": ffn, "layer_norm_eps": eps}
    config |= {"norm_first": dice.random() < 0.5, "final_norm": dice.random() < 0.5, "batch_first": kind == "encoder"}
    config |= {"activation": dice.choice(["gelu", "relu", nn.GELU(), nn.GELU("tanh"), nn.ReLU()])}
    if config["final_norm"] and eps != 1e-5:
        config["final_norm"] = False  # nn.LayerNorm's own eps: another one, which falls back
    return Family(f"{kind} {config}", lambda: encoder(**config), call_encoder if kind == "encoder" else call_seq_first)


@pytest.mark.parametrize("number", range(40))
def test_random_modules(number):
    """GNOMON_TEST_SEED repeats a run; the seed is in the test's output."""
    seed = int(os.environ.get("GNOMON_TEST_SEED", random.SystemRandom().randrange(10**6))) + number
    print(f"GNOMON_TEST_SEED={seed - number}, case {number}")
    dice = random.Random(seed)
    family = random_family(dice)
    batch, seq = dice.choice([1, 2, 5]), dice.choice([1, 2, 7, 20])
    torch.manual_seed(seed)
    module = fast(family, seed, effort=dice.choice(["estimate", "measure"]), budget=0.1)
    width = next(m.normalized_shape[0] for m in module.modules() if isinstance(m, nn.LayerNorm))
    x = torch.randn(batch, seq, width) * dice.choice([0.1, 1, 5])
    for valid in (None, ragged(batch, seq, seed)):
        check(family, module, x, valid)
