"""Shapes and memory: every size, any strides, nothing at all, and many different lengths."""

import pytest
import torch

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    FEW,
    Family,
    assert_in_contract,
    call_encoder,
    call_reference,
    check,
    encoder,
    entry,
    fast,
    own_answer,
    reasons,
    reference,
)

families = pytest.mark.parametrize("family", FAMILIES, ids=str)


@families
@pytest.mark.parametrize("batch, seq", [(1, 1), (7, 1), (1, 2), (5, 3), (2, 33)])
def test_small_and_odd_sizes(family, batch, seq):
    """C7."""
    check(family, fast(family), torch.randn(batch, seq, D))


@pytest.mark.parametrize(
    "heads, head_size", [(2, n) for n in (4, 5, 13, 20, 26, 48, 72, 80, 160, 320)] + [(7, 1)], ids=lambda n: str(n)
)
def test_head_sizes(heads, head_size):
    """C8, with an FFN of width 13."""
    d = heads * head_size
    family = Family("encoder", lambda: encoder(layers=1, d=d, heads=heads, ffn=13), call_encoder)
    check(family, fast(family), torch.randn(2, 6, d))


def test_many_short_sequences():
    """C6."""
    family = Family("reference", lambda: reference(layers=1, d_model=64, causal=True), call_reference)
    check(family, fast(family), torch.randn(65_537, 4, 64))


def test_three_hundred_thousand_sequences():
    family = Family("reference", lambda: reference(layers=1, d_model=64, causal=True), call_reference)
    module, x = fast(family), torch.randn(1, 4, 64).expand(300_000, 4, 64)
    with torch.inference_mode():
        actual = module(x)
    assert actual.is_contiguous() and entry(module)["answered"] == 1
    expected = own_answer(family, module, x[:1])
    for part in actual.split(50_000):
        assert_in_contract(part, expected.expand(50_000, 4, 64))


@families
@pytest.mark.parametrize("shape", [(0, 10, D), (3, 0, D), (0, 0, D)])
def test_empty_inputs(family, shape):
    """C9: an empty output of that shape, nothing planned."""
    module = fast(family)
    with torch.inference_mode():
        actual = family.call(module, torch.randn(shape), None)
    assert actual.shape == shape and entry(module)["answered"] == 1
    assert all(e["stats"]["problems_planned"] == 0 for e in entry(module)["engines"])


STRIDED = {
    "transposed": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "channels first": lambda x: x.permute(2, 0, 1).contiguous().permute(1, 2, 0),
    "column slice": lambda x: torch.cat([x, x], -1)[..., D:],
    "step two": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "row step": lambda x: x.repeat_interleave(3, 1)[:, ::3],
    "stride zero": lambda x: x[:1].expand(4, -1, -1),
    "slice of a batch": lambda x: torch.cat([x, x])[2:6],
}


@families
@pytest.mark.parametrize("kind", STRIDED)
def test_strided_inputs(family, kind):
    """C10: the bits of the contiguous copy."""
    module, x = fast(family), STRIDED[kind](torch.randn(4, 6, D))
    with torch.inference_mode():
        assert torch.equal(family.call(module, x, None), family.call(module, x.contiguous(), None))
    check(family, module, x)


def test_a_slice_of_an_earlier_output():
    family = FEW[0]
    module = fast(family)
    with torch.no_grad():
        y = module(torch.randn(4, 8, D))
    check(family, module, y[1:, ::2])


def test_three_hundred_lengths_in_a_row():
    """C11: plans are capped, and so is what Python keeps for each shape."""
    family = Family("reference", lambda: reference(layers=1, d_model=8, n_heads=1, d_ff=8), call_reference)
    module = fast(family, max_plans=8, plan_dir=None)
    x = torch.randn(1, 300, 8)
    with torch.inference_mode():
        full = module(x)
        for seq in range(1, 300):
            assert_in_contract(module(x[:, :seq]), full[:, :seq])  # causal: a prefix answers alike
    (engine,) = entry(module)["engines"]
    assert engine["stats"]["plans_evicted"] >= 290 and entry(module)["answered"] == 300
    from gnomon import _engine

    assert len(_engine._prepared.calls) <= _engine._PREPARED_KEPT


def test_another_width_than_the_weights_is_refused():
    module = fast(FEW[0])
    with torch.inference_mode(), pytest.raises(gnomon.CallerError, match="32.*48|48.*32"):
        module(torch.randn(1, 4, 48))


@families
@pytest.mark.parametrize("shape", [(D,), (6, D), (2, 3, 4, D)], ids=len)
def test_inputs_of_other_than_three_axes_are_the_modules_own(family, shape):
    """Whatever it makes of them: an answer, or an error of its own."""
    module, x = fast(family), torch.randn(shape)
    plain = family.make()
    plain.load_state_dict(module.state_dict())
    given = (lambda m: m(inputs_embeds=x, use_cache=False)[0]) if family.name == "gpt2" else lambda m: m(x)
    with torch.no_grad():
        try:
            expected = given(plain)
        except Exception as own:  # noqa: BLE001 -- the same must come from the optimized one
            with pytest.raises(type(own)) as caught:
                given(module)
            assert str(caught.value) == str(own)
        else:
            assert torch.equal(given(module), expected)
    assert f"{len(shape)} axes" in reasons(module)[0] and entry(module)["answered"] == 0
