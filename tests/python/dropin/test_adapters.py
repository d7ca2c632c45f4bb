"""The families in their whole breadth, whole Hugging Face models, a real model, and the adapter of the documentation."""

import itertools
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gnomon
from dropin_support import (
    D,
    QUICK,
    Family,
    assert_in_contract,
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
    ragged,
    reasons,
    reference,
)
from support.minilm import MiniLM, model_folder, sentence_vectors

DOCS = Path(__file__).resolve().parents[3] / "docs" / "pytorch.md"


@pytest.mark.parametrize("norm_first, batch_first, final_norm", itertools.product([False, True], repeat=3))
@pytest.mark.parametrize(
    "activation", ["relu", "gelu", F.gelu, torch.relu, nn.ReLU(), nn.GELU(), nn.GELU("tanh")], ids=lambda a: str(a)[:18]
)
def test_encoders_of_every_kind(norm_first, batch_first, final_norm, activation):
    kind = {"norm_first": norm_first, "batch_first": batch_first, "final_norm": final_norm, "activation": activation}
    family = Family(str(kind), lambda: encoder(**kind), call_encoder if batch_first else call_seq_first)
    check(family, fast(family), torch.randn(3, 7, D), ragged(3, 7))


def test_an_eps_of_numpy():
    numpy = pytest.importorskip("numpy")
    family = Family("eps", lambda: encoder(layer_norm_eps=numpy.float64(1e-3)), call_encoder)
    check(family, fast(family), torch.randn(3, 7, D))


@pytest.mark.skipif(
    "bias" not in nn.TransformerEncoderLayer.__init__.__code__.co_varnames,
    reason="PyTorch before 2.1 has no bias=False",
)
def test_encoders_without_biases():
    family = Family("nobias", lambda: encoder(bias=False), call_encoder)
    check(family, fast(family), torch.randn(3, 7, D), ragged(3, 7))


@pytest.mark.parametrize(
    "norm, activation, causal", itertools.product(["post", "pre"], ["gelu", "gelu_tanh", "relu"], [True, False])
)
def test_references_of_every_kind(norm, activation, causal):
    for rest in ({}, {"final_norm": True}, {"bias": False}, {"eps": 1e-12}):
        kind = {"norm": norm, "activation": activation, "causal": causal, **rest}
        family = Family(str(kind), lambda: reference(**kind), call_reference)
        check(family, fast(family), torch.randn(3, 7, D), ragged(3, 7))


@pytest.mark.parametrize("activation", ["gelu", "gelu_new", "gelu_fast", "gelu_python", "gelu_pytorch_tanh", "relu"])
def test_activations_of_transformers(activation):
    family = Family(activation, lambda: bert_encoder(hidden_act=activation), call_bert)
    check(family, fast(family), torch.randn(3, 7, D), ragged(3, 7))
    family = Family(activation, lambda: gpt2(activation_function=activation), call_gpt2, causal=True)
    check(family, fast(family), torch.randn(3, 7, D), ragged(3, 7))


@pytest.fixture
def tokens():
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 50, (3, 9), generator=generator), ragged(3, 9).long()


def answers(model, call) -> tuple:
    """The plain answer, then Gnomon's."""
    with torch.inference_mode():
        plain = call(model)
        gnomon.optimize(model, **QUICK)
        return plain, call(model)


def test_a_whole_bert(tokens):
    from transformers import BertConfig, BertForMaskedLM

    ids, mask = tokens
    model = BertForMaskedLM(
        BertConfig(hidden_size=D, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64, vocab_size=50)
    ).eval()
    for return_dict in (True, False):
        gnomon.restore(model)
        plain, ours = answers(model, lambda m: m(ids, attention_mask=mask, return_dict=return_dict))
        assert type(plain) is type(ours) and len(plain) == len(ours)
        assert_in_contract(ours[0], plain[0])
        (one,) = gnomon.explain(model).as_dict()["modules"]
        assert one["name"] == "bert.encoder" and one["answered"] == 1


@pytest.mark.parametrize("extra", ["nothing", "positions", "types", "embeddings", "tuple"])
def test_a_whole_gpt2(tokens, extra):
    from transformers import GPT2Config, GPT2LMHeadModel

    ids, mask = tokens
    model = GPT2LMHeadModel(GPT2Config(n_embd=D, n_layer=2, n_head=4, vocab_size=50, n_positions=16)).eval()
    arguments = {
        "nothing": {},
        "positions": {"position_ids": torch.arange(9).flip(0)[None].expand(3, 9)},
        "types": {"token_type_ids": ids.flip(0)},
        "embeddings": {"inputs_embeds": torch.randn(3, 9, D)},
        "tuple": {"return_dict": False},
    }[extra]
    given = () if extra == "embeddings" else (ids,)
    plain, ours = answers(model, lambda m: m(*given, attention_mask=mask, use_cache=False, **arguments))
    assert type(plain) is type(ours) and len(plain) == len(ours)
    assert_in_contract(ours[0], plain[0])
    (one,) = gnomon.explain(model).as_dict()["modules"]
    assert one["name"] == "transformer" and one["answered"] == 1 and one["fallbacks"] == []


def test_hooks_on_gpt2s_embeddings_fire(tokens):
    """They are not replaced, so they are no reason to fall back."""
    model, seen = gnomon.optimize(gpt2(), **QUICK), []
    model.wte.register_forward_hook(lambda m, args, out: seen.append(out) or out * 2)
    with torch.inference_mode():
        y = model(tokens[0], use_cache=False)[0]
        assert_in_contract(y, gnomon.restore(model)(tokens[0], use_cache=False)[0])
    assert len(seen) == 2


def test_hooks_on_gpt2s_embeddings_fire_once_where_the_mask_makes_it_fall_back(tokens):
    model, seen = gnomon.optimize(gpt2(), **QUICK), []
    model.wte.register_forward_hook(lambda *_: seen.append(1))
    with torch.inference_mode():
        model(tokens[0], attention_mask=tokens[1].flip(1), use_cache=False)
    assert len(seen) == 1 and "sees no valid token" in reasons(model)[0]


def test_generation_with_a_cache_is_gpt2s_own(tokens):
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_embd=D, n_layer=2, n_head=4, vocab_size=50, n_positions=32)).eval()
    arguments = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    plain, ours = answers(model, lambda m: m.generate(tokens[0], **arguments))
    assert torch.equal(plain, ours) and "use_cache" in reasons(model.transformer)[0]
    gnomon.restore(model)
    plain, ours = answers(model, lambda m: m.generate(tokens[0], use_cache=False, **arguments))
    assert torch.equal(plain, ours) and entry(model.transformer)["answered"] == 5


def test_another_release_of_transformers_is_not_trusted(monkeypatch):
    import transformers

    family = Family("bert", bert_encoder, call_bert)
    for version in ("4.48.0", "5.0.1", "4.20.1", "nonsense"):
        monkeypatch.setattr(transformers, "__version__", version)
        module = fast(family)
        with torch.no_grad():
            family.call(module, torch.randn(1, 4, D))
        assert f"transformers {version} is not one" in reasons(module)[0]


SENTENCES = ["A man is playing a guitar on the stage.", "Share prices dropped.", "Hi!"]


def test_the_real_minilm_in_transformers(plan_folder):
    """Published weights, real sentences, padding: states under the contract, cosines to 1e-4."""
    from safetensors.torch import load_file
    from transformers import BertConfig, BertModel

    published = MiniLM()
    model = BertModel(BertConfig.from_json_file(str(model_folder() / "config.json")), add_pooling_layer=False).eval()
    missing = model.load_state_dict(load_file(str(published.weights_file)), strict=False).missing_keys
    assert not [name for name in missing if "position_ids" not in name]
    ids, mask = published.batch(SENTENCES)
    plain, ours = answers(model, lambda m: m(ids, attention_mask=mask.long()).last_hidden_state)
    assert_in_contract(ours, plain)
    vectors = [sentence_vectors(states, mask) for states in (plain, ours)]
    assert torch.allclose(vectors[0] @ vectors[0].T, vectors[1] @ vectors[1].T, atol=1e-4)
    assert gnomon.explain(model).as_dict()["modules"][0]["answered"] == 1


@pytest.fixture(scope="module")
def example() -> dict:
    """The names that the example of the documentation makes. Its adapter stays registered; its classes are its own."""
    code = re.search(r"<!-- example: adapter -->\n```python\n(.*?)```", DOCS.read_text(), re.S).group(1)
    names = {}
    exec(compile(code, str(DOCS), "exec"), names)
    return names


def test_the_documented_adapter_is_short_and_right(example):
    model, x, keep = example["model"], torch.randn(3, 7, 64), ragged(3, 7)
    gnomon.optimize(model, **QUICK)
    family = Family(
        "documented", None, lambda m, x, valid: m(x, torch.ones(3, 7, dtype=torch.bool) if valid is None else valid)
    )
    check(family, model, x, keep)
    check(family, model, x)
    text = re.search(r"class MyAdapter.*?\n\n\n", DOCS.read_text(), re.S).group(0)
    assert len([line for line in text.splitlines() if line.strip()]) <= 30


DOCUMENTED = {
    "has hooks": lambda m: m.blocks[0].up.register_forward_hook(lambda m, args, out: out * 2),
    "heads": lambda m: setattr(m.blocks[1], "heads", 2),
    "extra submodule": lambda m: m.blocks[1].add_module("extra", nn.Linear(2, 2).eval()),
}


@pytest.mark.parametrize("word", DOCUMENTED)
def test_the_documented_adapter_falls_back_where_it_must(example, word):
    model = gnomon.optimize(example["MyTransformer"]().eval(), **QUICK)
    family = Family("documented", None, lambda m, x, valid: m(x, valid))
    x, keep = torch.randn(3, 7, 64), ragged(3, 7)
    check(family, model, x, keep)
    DOCUMENTED[word](model)
    with torch.no_grad():
        ours = model(x, keep)
        assert word in reasons(model)[-1]
        assert torch.equal(ours, gnomon.restore(model)(x, keep))


def test_an_adapter_with_a_mistake_says_so():
    class Odd(nn.Module):
        def forward(self, x):
            return x + 1

    class OddAdapter(gnomon.Adapter):
        name = "odd"

        def matches(self, module):
            return gnomon.plain_class(module) is Odd

        def describe(self, module):
            return module.no_such_attribute

    gnomon.register_adapter(OddAdapter())
    module = gnomon.optimize(Odd().eval())
    assert module(torch.zeros(1)) == 1 and "no_such_attribute" in reasons(module)[0]


def test_every_option_has_its_row_in_the_documentation():
    taken = re.findall(r'Row\{"(\w+)"', (DOCS.parents[1] / "src" / "engine" / "engine_options.cpp").read_text())
    rows = [line for line in DOCS.read_text().split("## Options")[1].split("\n## ")[0].splitlines() if line.startswith("| `")]
    told = [name for row in rows for name in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert len(taken) > 10 and sorted(told) == sorted({*taken, "padded_rows"} - {"device"})  # the device is the module's
