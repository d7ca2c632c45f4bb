"""The comparison's own parts: what it computes must be right before what it says can be."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import contract
import peers
import report
import safetensors_io
from reference import Reference
from stack_config import StackConfig, load_suite

HAS_ORT = importlib.util.find_spec("onnxruntime") is not None
HAS_OPENBLAS = not peers.torch_tuned(1).refusal
COMPARE = Path(__file__).resolve().parents[2] / "bench" / "peers" / "compare.py"


@pytest.mark.parametrize(
    "u, r, worst",
    [
        (1.0, 1.0, 0.0),
        (0.001, 0.0, 0.5),  # half the absolute limit
        (1.01, 1.0, 0.5),  # half the relative limit
        (100.0, 103.0, 3.0 / (0.02 * 103.0)),  # out of both
        (np.nan, 1.0, np.inf),
        (np.inf, 1.0, np.inf),
        (1.0, np.nan, np.inf),
        (np.inf, -np.inf, np.inf),
        (np.nan, np.inf, np.inf),
        (np.nan, np.nan, 0.0),
        (np.inf, np.inf, 0.0),
    ],
)
def test_contract_terms(u, r, worst):
    verdict = contract.compare(np.array([0.0, u]), np.array([0.0, r]))
    assert verdict.worst == pytest.approx(worst) and verdict.out_of_contract == int(worst > 1)


def test_contract_looks_at_every_block(monkeypatch):
    monkeypatch.setattr(contract, "BLOCK", 7)
    r = np.zeros(30)
    for bad in range(30):
        u = r.copy()
        u[bad] = 1.0
        assert contract.compare(u, r).out_of_contract == 1


def test_safetensors_round_trip(tmp_path):
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.array([2.5], np.float64)}
    safetensors_io.save(tmp_path / "t.safetensors", tensors, {"k": "v"})
    loaded = safetensors_io.load(tmp_path / "t.safetensors")
    assert list(loaded) == list(tensors)
    assert all(
        np.array_equal(loaded[name], tensor) and loaded[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )


def test_ratios_are_paired_and_means_geometric():
    def shape(shape_id, own, other):
        return {
            "id": shape_id,
            "peers": report.summarise({"a": {"rounds_ms": own}, "b": {"rounds_ms": other}}, ["a", "b"]),
        }

    # A slow second round hits both peers; only the paired ratio is blind to it.
    shapes = [shape(1, [1.0, 10.0, 1.0], [2.0, 20.0, 2.0]), shape(2, [1.0], [8.0])]
    assert shapes[0]["peers"]["b"]["ratio"] == {"median": 2.0, "low": 2.0, "high": 2.0}
    means = report.geometric_means(shapes, ["a", "b"])
    assert means["b"]["ratio"] == pytest.approx(4.0) and means["b"]["lowest"] == 2.0


def test_peers_that_do_not_fit_together_get_sessions_of_their_own():
    _, shapes = load_suite()
    names = ["gnomon", "ort", "torch_tuned", "torch"]
    small, large, impossible = shapes[0], shapes[6], shapes[13]
    assert peers.groups(names, small, 20 << 30) == ([names], {})
    assert peers.groups(names, large, 20 << 30)[0] == [
        ["gnomon", "ort"],
        ["gnomon", "torch_tuned"],
        ["gnomon", "torch"],
    ]
    sessions, refused = peers.groups(names, impossible, 20 << 30)
    assert sessions == [["gnomon"]] and set(refused) == set(names[1:]) and "memory" in refused["ort"]


@pytest.mark.skipif(not HAS_ORT, reason="onnxruntime is the comparison's alone: bench/peers/run.sh installs it")
@pytest.mark.parametrize("causal", [True, False])
def test_onnx_graph_computes_the_reference(causal):
    import onnxruntime

    import ort_graph

    torch.manual_seed(1)
    config = StackConfig(layers=2, d_model=32, n_heads=4, d_ff=64, causal=causal)
    module = Reference(config).eval()
    for name, parameter in module.named_parameters():
        if "norm" in name:
            torch.nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.2)
    x = torch.randn(3, 10, 32)
    weights = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    session = onnxruntime.InferenceSession(
        ort_graph.build(config, weights, 3, 10).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (y,) = session.run(None, {"x": x.numpy()})
    with torch.inference_mode():
        assert np.abs(y - module(x).numpy()).max() <= 1e-4


def run_compare(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, COMPARE, "--shapes", "1", "--rounds", "3", "--slot", "0.01", *arguments]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120)


def test_a_whole_comparison_on_a_tiny_suite(tmp_path, library):
    limits, _ = load_suite()
    tiny = {"id": 1, "B": 2, "S": 8, "d_model": 32, "n_heads": 2, "n_layers": 1, "d_ff": 64}
    (tmp_path / "suite.json").write_text(json.dumps({"contract": limits, "shapes": [tiny]}))
    out = tmp_path / "peers.json"
    there = {"gnomon": True, "ort": HAS_ORT, "torch_tuned": HAS_OPENBLAS, "torch": True}
    names = [name for name, available in there.items() if available]
    done = run_compare("--suite", tmp_path / "suite.json", "--out", out, "--library", library.path,
                       "--gnomon-option", "budget=0.2", "--peers", ",".join(names))  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(out.read_text())
    (shape,) = results["shapes"]
    for name in names:
        peer = shape["peers"][name]
        assert len(peer["rounds_ms"]) == 3 and peer["contract"]["holds"], (name, peer)
    assert shape["peers"]["gnomon"]["plan"]["winner"]
    assert results["geometric_means"]["torch"]["shapes"] == [1]
    assert "geometric mean" in done.stdout
    if HAS_OPENBLAS:
        assert all("openblas-openmp" in path for path in shape["peers"]["torch_tuned"]["about"]["blas"])


def test_a_failing_peer_is_named_and_fails_the_run(tmp_path):
    done = run_compare("--out", "-", "--peers", "gnomon,torch", "--library", tmp_path / "nothing.so")
    assert done.returncode == 1
    assert "gnomon failed: FileNotFoundError" in done.stdout and "nothing.so" in done.stdout
