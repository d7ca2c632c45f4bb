"""Small random stacks of every kind through the C interface against the PyTorch reference, under the contract."""

import itertools

import numpy as np
import pytest
import torch

import contract
import gnomon_ctypes
from reference import Reference
from stack_config import StackConfig

BATCH, SEQ = 3, 10
SMALL = {"layers": 2, "d_model": 32, "n_heads": 4, "d_ff": 64}
KINDS = [
    StackConfig(**SMALL, norm=norm, activation=activation, causal=causal)
    for norm, activation, causal in itertools.product(("post", "pre"), ("gelu", "gelu_tanh", "relu"), (True, False))
]
ODD = [
    StackConfig(layers=1, d_model=7, n_heads=7, d_ff=13),
    StackConfig(layers=2, d_model=26, n_heads=2, d_ff=13, causal=False),
    StackConfig(layers=2, d_model=40, n_heads=2, d_ff=48, bias=False),
    StackConfig(layers=2, d_model=32, n_heads=4, d_ff=64, norm="pre", final_norm=True),
    StackConfig(layers=2, d_model=32, n_heads=4, d_ff=64, eps=1e-12),
]


def right_padding() -> np.ndarray:
    return np.arange(SEQ)[None, :] < np.array([[SEQ], [7], [1]])


def left_padding_and_holes() -> np.ndarray:
    mask = np.ones((BATCH, SEQ), bool)
    mask[0, :2] = False  # with a causal mask the first two queries see nothing
    mask[1, 3:5] = False
    mask[2, ::2] = False
    return mask


def one_sequence_without_a_valid_token() -> np.ndarray:
    mask = np.ones((BATCH, SEQ), bool)
    mask[1] = False
    return mask


MASKS = {
    "no_mask": lambda: None,
    "all_true": lambda: np.ones((BATCH, SEQ), bool),
    "right": right_padding,
    "left_and_holes": left_padding_and_holes,
    "nothing_valid": one_sequence_without_a_valid_token,
}


def stack(library, config: StackConfig, seed: int, **options) -> tuple[Reference, gnomon_ctypes.Engine]:
    torch.manual_seed(seed)
    module = Reference(config).eval()
    for name, parameter in module.named_parameters():
        if "norm" in name:  # ones and zeros would hide a swapped or forgotten LayerNorm parameter
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.2)
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    weights = gnomon_ctypes.Weights.from_tensors(library, config.grammar(), tensors)
    return module, gnomon_ctypes.Engine(library, weights, **{"plan_dir": "", "budget": "0.2"} | options)


def expected(module: Reference, x: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
    with torch.inference_mode():
        return module(torch.from_numpy(x), None if mask is None else torch.from_numpy(mask)).numpy()


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


@pytest.mark.parametrize("mask_name", MASKS)
@pytest.mark.parametrize(
    "config", KINDS, ids=lambda config: f"{config.norm}-{config.activation}-{'causal' if config.causal else 'bi'}"
)
def test_every_kind_of_stack_with_every_kind_of_mask(library, config, mask_name):
    module, engine = stack(library, config, seed=1, effort="estimate")
    x, mask = normal(2, BATCH, SEQ, config.d_model), MASKS[mask_name]()
    verdict = contract.compare(engine.forward(x, mask), expected(module, x, mask))
    assert verdict.holds, verdict


@pytest.mark.parametrize("config", ODD, ids=StackConfig.grammar)
def test_odd_sizes_and_options_measured(library, config):
    module, engine = stack(library, config, seed=3)
    x, mask = normal(4, BATCH, SEQ, config.d_model), left_padding_and_holes()
    verdict = contract.compare(engine.forward(x, mask), expected(module, x, mask))
    assert verdict.holds, verdict


@pytest.mark.parametrize("causal", [True, False])
def test_padded_rows_may_hold_anything(library, causal):
    module, engine = stack(library, StackConfig(**SMALL, causal=causal), seed=5, effort="estimate")
    x, mask = normal(6, BATCH, SEQ, 32), right_padding()
    clean = engine.forward(x, mask)
    for value in (np.nan, np.inf, 1e30):
        dirty = x.copy()
        dirty[~mask] = value
        valid = engine.forward(dirty, mask)[mask]
        assert contract.compare(valid, expected(module, x, mask)[mask]).holds, f"padding of {value}"
        assert contract.compare(valid, clean[mask]).holds


def test_all_true_mask_gives_the_bits_of_no_mask(library):
    config = StackConfig(**SMALL)
    _, engine = stack(library, config, seed=7, effort="estimate")
    x = normal(8, BATCH, SEQ, 32)
    assert np.array_equal(engine.forward(x), engine.forward(x, np.ones((BATCH, SEQ), bool)))


def test_output_may_be_the_input_and_strides_are_obeyed(library):
    module, engine = stack(library, StackConfig(**SMALL), seed=9, effort="estimate")
    x = normal(10, BATCH, SEQ, 32)
    want = expected(module, x, None)
    strided = np.zeros((SEQ, BATCH, 64), np.float32).transpose(1, 0, 2)[:, :, ::2]
    strided[...] = x
    assert contract.compare(engine.forward(strided), want).holds
    engine.forward(x, out=x)
    assert contract.compare(x, want).holds


@pytest.mark.parametrize("shape", [(0, 10, 32), (3, 0, 32), (0, 0, 32)])
def test_an_empty_input_gives_an_empty_output(library, shape):
    _, engine = stack(library, StackConfig(**SMALL), seed=11)
    assert engine.forward(np.zeros(shape, np.float32)).shape == shape
    assert engine.stats()["problems_planned"] == 0


def test_errors_name_what_was_expected_and_what_came(library):
    _, engine = stack(library, StackConfig(**SMALL), seed=12)
    with pytest.raises(gnomon_ctypes.GnomonError, match=r"32.*48|48.*32") as caught:
        engine.forward(np.zeros((1, 4, 48), np.float32))
    assert caught.value.status == 1
    with pytest.raises(gnomon_ctypes.GnomonError, match="no_such_option"):
        gnomon_ctypes.Engine(library, engine.weights, no_such_option="1")
