"""Masks: every family's own convention, what counts as exactly causal, what is refused and what falls back."""

import pytest
import torch
from torch import nn

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    assert_in_contract,
    check,
    check_falls_back,
    encoder,
    entry,
    fast,
    own_answer,
    ragged,
    reasons,
)

B, S = 3, 10
BY_NAME = {family.name: family for family in FAMILIES}
REFERENCE, ENCODER = BY_NAME["reference-causal"], BY_NAME["encoder"]
families = pytest.mark.parametrize("family", FAMILIES, ids=str)


def all_but(*rows_and_columns) -> torch.Tensor:
    valid = torch.ones(B, S, dtype=torch.bool)
    for place in rows_and_columns:
        valid[place] = False
    return valid


MASKS = {
    "none": None,
    "all true": all_but(),
    "right": ragged(B, S),
    "holes": all_but((0, slice(3, 5)), (1, slice(1, None, 2)), (2, 7)),
    "same trailing columns": all_but((slice(None), slice(7, None))),
}


@families
@pytest.mark.parametrize("mask", MASKS)
def test_every_mask_in_every_familys_own_convention(family, mask):
    check(family, fast(family), torch.randn(B, S, D), MASKS[mask])


@families
def test_all_true_gives_the_bits_of_no_mask(family):
    """Under the same choices: stored plans of other tests could differ."""
    module, x = fast(family, plan_dir=None, force={"fused_attention": True, "slices": 1}), torch.randn(B, S, D)
    with torch.inference_mode():
        assert torch.equal(family.call(module, x, None), family.call(module, x, all_but()))
    assert entry(module)["answered"] == 2


@families
def test_a_sequence_without_a_valid_token(family):
    """C1: finite, and the others as ever. A module whose own answer there is another finite one keeps it."""
    x, valid = torch.randn(B, S, D), all_but(1)
    others = torch.tensor([True, False, True])
    if family.own_blind_rows:
        check_falls_back(family, fast(family), x, valid, "sees no valid token")
    module = fast(family, padded_rows="any")
    actual = check(family, module, x, valid, rows=others)
    assert actual.isfinite().all()


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.causal], ids=str)
def test_left_padding_under_a_causal_mask(family):
    """C2: the valid tokens answer as the sequence alone, without its padding."""
    module, x = fast(family, padded_rows="any"), torch.randn(B, 6, D)
    valid = torch.ones(B, 6, dtype=torch.bool)
    valid[0, :2] = False
    with torch.inference_mode():
        actual = family.call(module, x, valid)
    assert actual.isfinite().all() and entry(module)["answered"] == 1
    if family.name.startswith("reference"):  # GPT-2 adds positions
        assert_in_contract(actual[:1, 2:], own_answer(family, module, x[:1, 2:]))
    else:
        assert_in_contract(actual[valid], own_answer(family, module, x, valid)[valid])
        check_falls_back(family, fast(family), x, valid, "sees no valid token")
    assert_in_contract(actual[1:], own_answer(family, module, x)[1:])


@families
@pytest.mark.parametrize("junk", [float("nan"), float("inf"), 1e30])
def test_padded_rows_may_hold_anything(family, junk):
    """C3."""
    module, x, valid = fast(family), torch.randn(B, S, D), ragged(B, S)
    clean = own_answer(family, module, x, valid)[valid]
    x[~valid] = junk
    with torch.inference_mode():
        assert_in_contract(family.call(module, x, valid)[valid], clean)


@families
def test_nan_in_a_valid_row_stays_in_its_sequence(family):
    module, x = fast(family), torch.randn(B, S, D)
    clean = own_answer(family, module, x)
    x[1, 4, 3] = float("nan")
    with torch.inference_mode():
        actual = family.call(module, x, None)
    sees_it = slice(4, None) if family.causal else slice(None)
    assert actual[1, sees_it].isnan().any(-1).all()
    assert_in_contract(actual[[0, 2]], clean[[0, 2]])
    if family.causal:  # PyTorch's own answer there is NaN too: 0 * NaN of a score that counts nothing
        assert_in_contract(actual[1, :4], clean[1, :4])


WRONG = {
    "uint8": lambda v: v.to(torch.uint8),
    "int64": lambda v: v.long(),
    "float 0/1": lambda v: v.float(),
    "float 0/-inf": lambda v: torch.zeros(B, S).masked_fill(~v, float("-inf")),
    "[B, 1, 1, S]": lambda v: v[:, None, None, :],
    "[S, B]": lambda v: v.t(),
    "another device": lambda v: v.to("meta"),
    "a list": lambda v: v.tolist(),
}


@pytest.mark.parametrize("kind", WRONG)
def test_the_reference_refuses_masks_of_another_kind(kind):
    """C4: one line that names the rule and what came; nothing ran."""
    module = fast(REFERENCE)
    with torch.inference_mode(), pytest.raises(gnomon.CallerError) as caught:
        module(torch.randn(B, S, D), WRONG[kind](ragged(B, S)))
    text = str(caught.value)
    assert "\n" not in text and "[3, 10] and type bool" in text and "True = valid token" in text and "got" in text
    assert entry(module)["answered"] == 0


def additive(valid: torch.Tensor, hidden: float) -> torch.Tensor:
    return torch.zeros(valid.shape).masked_fill(~valid, hidden)


def test_an_additive_padding_mask_is_taken_when_it_is_exactly_one():
    module, x, valid = fast(ENCODER), torch.randn(B, S, D), ragged(B, S)
    with torch.inference_mode():
        ours = module(x, src_key_padding_mask=additive(valid, float("-inf")))
        assert torch.equal(ours, module(x, src_key_padding_mask=~valid)) and entry(module)["answered"] == 2
    with torch.no_grad():
        module(x, src_key_padding_mask=additive(valid, -1.5))
    assert "more than 0 and one lowest value" in reasons(module)[-1]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_a_padding_mask_that_the_encoder_itself_refuses_is_its_own_affair(dtype):
    module = fast(ENCODER)
    with torch.no_grad(), pytest.raises((AssertionError, RuntimeError)):
        module(torch.randn(B, S, D), src_key_padding_mask=ragged(B, S).to(dtype))
    assert "not bool or floating" in reasons(module)[-1]


def causal_masks() -> dict:
    hidden = torch.ones(S, S, dtype=torch.bool).triu(1)
    return {"bool": hidden, "float": nn.Transformer.generate_square_subsequent_mask(S)}


def masked_by_hand(module, x, mask, padding=None):
    """The plain answer (see own_answer) with an attention mask."""
    with torch.enable_grad():
        return gnomon.restore(encoder_copy(module))(x, mask, padding).detach()


def encoder_copy(module):
    twin = encoder()
    twin.load_state_dict(module.state_dict())
    return twin


@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("padded", [False, True])
def test_an_exactly_causal_attention_mask_is_a_causal_stack(kind, padded):
    module, x, mask = fast(ENCODER), torch.randn(B, S, D), causal_masks()[kind]
    padding = ~ragged(B, S) if padded else None
    with torch.inference_mode():
        actual = module(x, mask, padding)
    assert_in_contract(actual, masked_by_hand(module, x, mask, padding))
    assert entry(module)["answered"] == 1 and " causal " in entry(module)["problems"][0]["problem"]


@pytest.mark.parametrize("empty", [torch.zeros(S, S, dtype=torch.bool), torch.zeros(S, S)], ids=["bool", "float"])
def test_an_attention_mask_that_hides_nothing_is_none(empty):
    module, x = fast(ENCODER), torch.randn(B, S, D)
    with torch.inference_mode():
        assert torch.equal(module(x, empty), module(x)) and entry(module)["answered"] == 2


OTHER = {
    "random bool": lambda: torch.rand(S, S) < 0.2,
    "strictly lower": lambda: torch.ones(S, S, dtype=torch.bool).triu(0) & ~torch.eye(S, dtype=torch.bool).roll(1, 0),
    "a bias": lambda: torch.randn(S, S),
    "large but finite": lambda: torch.full((S, S), -1e9).triu(1),
    "per head": lambda: torch.zeros(B * 4, S, S, dtype=torch.bool),
    "uint8": lambda: torch.ones(S, S).triu(1).to(torch.uint8),
}


@pytest.mark.parametrize("kind", OTHER)
@pytest.mark.filterwarnings("ignore:Byte tensor")
def test_any_other_attention_mask_falls_back(kind):
    module, x, mask = fast(ENCODER), torch.randn(B, S, D), OTHER[kind]()
    plain = encoder_copy(module)
    with torch.no_grad():
        try:
            expected = plain(x, mask)
        except (RuntimeError, AssertionError):
            pytest.skip("this PyTorch takes no such mask")
        actual = module(x, mask)
    assert ((actual == expected) | (actual.isnan() & expected.isnan())).all()
    assert "attention mask" in reasons(module)[-1] and entry(module)["answered"] == 0


def test_an_attention_mask_changed_in_place_is_looked_at_again():
    """The verdict on a mask is kept for its version alone."""
    module, x, mask = fast(ENCODER), torch.randn(B, S, D), causal_masks()["bool"].clone()
    with torch.no_grad():
        module(x, mask)
        assert entry(module)["answered"] == 1
        mask[0, 0] = True
        module(x, mask)
        assert reasons(module) == ["the attention mask is not exactly causal"]
        mask[0, 0] = False
        module(x, mask)
        mask.data[0, 0] = True  # what PyTorch does not count ...
        gnomon.refresh(module)  # ... is said by hand
        module(x, mask)
        mask.copy_(causal_masks()["bool"])
        module(x, mask)
        mask.data = mask.data.t()  # the same address and version
        module(x, mask)
    assert entry(module)["answered"] == 3 and entry(module)["fallbacks"][0]["count"] == 3


def test_is_causal_alone_says_nothing():
    """Unknown to PyTorch 1.13, and without a mask an error or ignored in later ones: the module's own affair."""
    module, x = fast(ENCODER), torch.randn(B, S, D)
    with torch.no_grad():
        try:
            assert_in_contract(module(x, is_causal=True), encoder_copy(module)(x, is_causal=True))
        except (TypeError, RuntimeError):
            pass
    assert "is_causal without a mask" in reasons(module)[-1] and entry(module)["answered"] == 0


@pytest.mark.parametrize("kind", ["nothing", "causal"])
def test_is_causal_with_a_mask_is_a_hint_that_must_be_true(kind):
    """PyTorch 2 drops the mask and obeys the hint; 1.13 does not know the argument."""
    module, x = fast(ENCODER), torch.randn(B, S, D)
    mask = torch.zeros(S, S, dtype=torch.bool)
    if kind == "causal":
        mask = torch.ones_like(mask).triu(1)
    with torch.no_grad():
        try:
            module(x, mask, is_causal=True)
        except TypeError:
            pass
    expected = [] if kind == "causal" else ["is_causal with a mask that hides nothing"]
    assert reasons(module) == expected and entry(module)["answered"] == (kind == "causal")
