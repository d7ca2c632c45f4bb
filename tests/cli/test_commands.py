"""Each command does its job on problems that take milliseconds."""

import csv
import io
import json
import os
import pty
import shutil
import subprocess

import numpy as np
import pytest

from conftest import BUILD

SMALL = "b2 s5 d16 h2 l2 f48"


@pytest.fixture
def weights(gnomon, tmp_path):
    """Weights of the reference's names as numpy writes them: [out, in] matrices."""
    generator = np.random.default_rng(5)
    shapes = {}
    for layer in range(2):
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            shapes[f"layers.{layer}.attn.{name}"] = (16, 16)
        shapes[f"layers.{layer}.fc1"], shapes[f"layers.{layer}.fc2"] = (48, 16), (16, 48)
    tensors = {}
    for name, shape in shapes.items():
        tensors[f"{name}.weight"] = generator.normal(0, 0.25, shape)
        tensors[f"{name}.bias"] = generator.normal(0, 0.25, shape[0])
    for layer in range(2):
        for norm in ("norm1", "norm2"):
            tensors[f"layers.{layer}.{norm}.weight"], tensors[f"layers.{layer}.{norm}.bias"] = np.ones(16), np.zeros(16)
    path = tmp_path / "weights.safetensors"
    save_safetensors(path, {name: tensor.astype(np.float32) for name, tensor in tensors.items()})
    return path


def save_safetensors(path, tensors):
    header, data = {}, b""
    for name, tensor in tensors.items():
        kind = {"float32": "F32", "bool": "BOOL", "uint8": "U8"}[str(tensor.dtype)]
        header[name] = {"dtype": kind, "shape": list(tensor.shape), "data_offsets": [len(data), len(data) + tensor.nbytes]}
        data += tensor.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_run_round_trip(gnomon, weights, tmp_path):
    x = np.random.default_rng(1).normal(size=(2, 5, 16)).astype(np.float32)
    mask = np.array([[True, True, True, False, False], [True] * 5])
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "mask.npy", mask)
    config = ["--config", "d16 h2 l2 f48 bi"]
    summary = gnomon.json("run", weights, "-i", "x.npy", "-m", "mask.npy", "-o", "y.npy", *config, "--json")
    assert summary["shape"] == [2, 5, 16] and summary["dtype"] == "f32" and "mask" in summary["problem"]
    y = np.load(tmp_path / "y.npy")
    assert y.shape == x.shape and y.dtype == np.float32 and np.isfinite(y).all()

    save_safetensors(tmp_path / "in.safetensors", {"x": x, "mask": mask})
    gnomon("run", weights, "-i", "in.safetensors", "--input-name", "x", "-m", "in.safetensors", "--mask-name", "mask", "-o", "y.safetensors", *config)
    stored = (tmp_path / "y.safetensors").read_bytes()
    assert np.array_equal(np.frombuffer(stored[-y.nbytes:], np.float32).reshape(y.shape), y)

    x[0, 3:] = np.nan  # padded tokens reach nobody else
    np.save(tmp_path / "x.npy", x)
    gnomon("run", weights, "-i", "x.npy", "-m", "mask.npy", "-o", "z.npy", *config)
    z = np.load(tmp_path / "z.npy")
    assert np.array_equal(z[0, :3], y[0, :3]) and np.array_equal(z[1], y[1])


@pytest.mark.parametrize("change, expected", [
    (lambda x: x[0], "expected [B, S, d_model]"),
    (lambda x: x.astype(np.int64), "<i8"),
    (lambda x: np.asfortranarray(x), "Fortran"),
    (lambda x: x[:, :, :8], "16"),
])
def test_run_refuses_other_inputs(gnomon, weights, tmp_path, change, expected):
    np.save(tmp_path / "x.npy", change(np.ones((2, 5, 16), np.float32)))
    done = gnomon("run", weights, "-i", "x.npy", "-o", "y.npy", "--config", "d16 h2 l2 f48", code=2)
    assert expected in done.stderr
    assert not (tmp_path / "y.npy").exists()


def test_explain_plans_once_and_keeps_it(gnomon):
    first = gnomon.json("explain", SMALL, "--json", "--plan-budget", "1")
    again = gnomon.json("explain", SMALL, "--json", "--stored")
    assert first["winner"] == again["winner"] and first["problem"] == again["problem"]
    assert len(first["candidates"]) > 1
    text = gnomon("explain", *SMALL.split(), "--stored").stdout
    assert SMALL.split()[0] in text and len(text.splitlines()) > 3


def test_plans_travel(gnomon):
    assert gnomon.json("plans", "list", "--json")["plans"] == []
    gnomon("explain", SMALL, "--effort", "estimate")
    assert len(gnomon.json("plans", "list", "--json")["plans"]) == 1
    exported = gnomon("plans", "export").stdout
    assert gnomon.json("plans", "forget", SMALL, "--json") == {"forgotten": 1}
    assert gnomon.json("plans", "import", "--json", input=exported) == {"imported": 1}
    assert "problem" in gnomon.json("plans", "show", SMALL, "--json")
    assert "1 plan in" in gnomon("plans", "list").stdout
    assert gnomon.json("plans", "forget", "--all", "--json") == {"forgotten": 1}


def test_plans_are_listed_in_natural_order(gnomon):
    for words in ("b10 s16 d16 h2 l1 f48", "b2 s16 d16 h2 l1 f48", "b3 s4 d16 h2 l1 f48", "b1 s100 d16 h2 l1 f48"):
        gnomon("explain", words, "--effort", "estimate")
    problems = [plan["problem"].split(" d16")[0] for plan in gnomon.json("plans", "list", "--json")["plans"]]
    assert problems == ["b3 s4", "b2 s16", "b10 s16", "b1 s100"]


def test_verify_holds(gnomon):
    report = gnomon.json("verify", SMALL, "-n", "5", "--json", "--plan-budget", "1", "--fp32-only")
    assert report["failed"] == 0 and len(report["samples"]) == 10
    assert {sample["mask"] for sample in report["samples"]} > {"none", "left padding", "one sequence empty"}
    assert "0 broke the contract" in gnomon("verify", SMALL, "-n", "1", "--no-masks", "--fp32-only").stdout


def test_verify_fails_when_the_contract_does_not_hold(gnomon):
    # No two orders of summation agree to 1e-12: some element must be out of contract.
    report = gnomon.json("verify", f"{SMALL} abs=1e-12 rel=1e-12 headroom=1e12", "-n", "1", "--no-masks", "--json",
                         "--force", "fused_attention=on", "--effort", "estimate", code=1)
    assert report["failed"] == 1 and report["samples"][0]["worst"] > 1


def test_bench_reports_the_same_in_all_forms(gnomon, tmp_path):
    done = gnomon("bench", "--note", "commit=abc", SMALL, "b1 s4 d16 h2 l1 f48 mask inplace", "--budget", "6", "--json", "r.json", "--csv", "r.csv")
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["notes"] == {"commit": "abc"} and len(report["rows"]) == 2
    assert report["devices"] == {"cpu": {"name": report["machine"]["cpu"]}} and "NVRTC" not in report["libraries"]
    for row in report["rows"]:
        assert row["not_run"] is None and row["out_of_contract"] == 0 and row["worst"] <= 1
        assert row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"]
        assert row["speedup"]["low"] <= row["speedup"]["median"] and row["bare_flops_per_second"] > 0
        overhead = row["overhead_seconds"]
        assert 0 < overhead["median"] < row["seconds"]["high"] if overhead else "path=plain" in row["plan"]
    lines = list(csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())))
    assert [line["problem"] for line in lines] == [row["problem"] for row in report["rows"]]
    assert float(lines[0]["seconds.median"]) == report["rows"][0]["seconds"]["median"]
    assert "p1" in done.stdout and "Geometric mean" in done.stdout
    assert ("the bare products' own rate varied" in done.stdout) == any(row["bare_spread"] > 0.2 for row in report["rows"])


def test_bench_lists_what_cannot_run(gnomon):
    report = gnomon.json("bench", "b32 s1000000 d1024 h16 f4096", "b512 s512 d1024 h16 f4096", "b1 s4 d16 h2 l1 f48", "--budget", "3", "--json", "-")
    memory, time, small = report["rows"]
    assert memory["not_run"].startswith("memory: needs at least")
    assert time["not_run"].startswith(("time: needs about", "memory: needs at least"))
    assert small["not_run"] is None


def test_bench_of_first_calls(gnomon, tmp_path):
    arguments = ("bench", "--first-calls", SMALL, "b32 s1000000 d1024 h16 f4096", "--plan-budget", "0.5")
    done = gnomon(*arguments, "--json", "r.json")
    report = json.loads((tmp_path / "r.json").read_text())
    row, large = report["rows"]
    assert row["later_seconds"]["median"] < row["plans_kept"]["seconds"] and "seconds" not in row
    for kept in ("nothing_kept", "kernels_kept"):
        assert 0 < row[kept]["planning_seconds"] < row[kept]["seconds"] and row[kept]["plan"].startswith("path=")
    assert row["plans_kept"]["planning_seconds"] == 0 and row["plans_kept"]["plan"] == row["kernels_kept"]["plan"]
    assert large["not_run"].startswith("memory: needs at least") and "not run: memory" in done.stdout


def test_bench_uses_the_suite_and_a_model(gnomon, weights):
    gnomon("run", weights, "-i", "none.npy", "-o", "y.npy", code=3)
    report = gnomon.json("bench", "--only", "1", "--budget", "5", "--json", "-")
    assert [row["id"] for row in report["rows"]] == ["#1"] and report["rows"][0]["problem"].startswith("b1 s100 d128")


def test_info(gnomon):
    info = gnomon.json("info", "--json")
    assert info["cpu"]["cores"] >= 1 and info["libraries"]["oneDNN"] and "GNOMON_PLAN_DIR" in info["variables"]
    assert info["devices"] == ["cpu", *info["cuda"]["devices"]]
    assert all(facts["name"] and facts["multiprocessors"] > 0 and facts["memory_bytes"] > 0 for facts in info["cuda"]["devices"].values())
    assert "missing" in info["cuda"] or {"driver", "NVRTC", "cuBLASLt"} <= set(info["cuda"]["libraries"])
    text = gnomon("info").stdout
    assert info["cpu"]["model"] in text and "GNOMON_LOG" in text


def test_nothing_but_results_when_piped(gnomon):
    done = gnomon("explain", SMALL, "--plan-budget", "0.3")
    assert done.stderr == "" and "\x1b" not in done.stdout and "\r" not in done.stdout


def test_progress_on_a_terminal(gnomon):
    reader, terminal = pty.openpty()
    done = subprocess.run([BUILD / "gnomon", "explain", SMALL, "--plan-budget", "1"], stdout=subprocess.PIPE, stderr=terminal,
                          env=gnomon.environment, cwd=gnomon.folder, check=True)
    os.close(terminal)
    shown = os.read(reader, 1 << 16).decode()
    os.close(reader)
    assert "planning" in shown and shown.endswith("\r\x1b[K") and b"\r" not in done.stdout


def test_bash_completion(gnomon, tmp_path):
    (tmp_path / "completion").write_text(gnomon("completion", "bash").stdout)

    def complete(*words):
        script = f'source completion; COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}; _gnomon; echo "${{COMPREPLY[@]}}"'
        return subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True).stdout.split()

    assert complete("gnomon", "be") == ["bench"]
    assert complete("gnomon", "bench", "--qu") == ["--quick"]
    assert complete("gnomon", "plans", "ex") == ["export"]
    assert complete("gnomon", "plans", "import", "--any") == ["--anyway"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_completions(gnomon, tmp_path, shell):
    script = gnomon("completion", shell).stdout
    assert "bench" in script and "quick" in script and "import" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", "script"], cwd=tmp_path, check=True)
