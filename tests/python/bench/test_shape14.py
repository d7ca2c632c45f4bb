"""bench/shape14.py runs on a GPU only; what it judges by does not need one."""

import importlib.util
from pathlib import Path

import torch

from reference import Reference
from stack_config import StackConfig

SCRIPT = Path(__file__).resolve().parents[3] / "bench" / "shape14.py"


def load():
    spec = importlib.util.spec_from_file_location("shape14", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_whole_sequence_in_blocks_of_queries_is_the_references_answer(monkeypatch):
    script, module = load(), Reference(StackConfig(layers=2, d_model=32, n_heads=4, d_ff=64)).eval()
    x = torch.randn(1, 50, module.config.d_model)
    for queries in (7, 50, 256):
        monkeypatch.setattr(script, "QUERIES", queries)
        with torch.inference_mode():
            torch.testing.assert_close(script.whole_sequence(module, x), module(x), atol=1e-5, rtol=1e-5)


def test_moments_are_of_all_elements():
    x = torch.randn(3, 5, 8) * 2 + 1
    mean, deviation = load().moments(x)
    assert abs(mean - float(x.mean())) < 1e-6 and abs(deviation - float(x.std(unbiased=False))) < 1e-5
