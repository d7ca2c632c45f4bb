"""bench/gpu.sh with programs that are not there: what fails, hangs or is missing costs its own step and no other."""

import os
import stat
import subprocess
from pathlib import Path

import pytest

from conftest import ROOT


class Machine:
    """A folder of binaries, and a PATH with the tools of a machine that has a GPU."""

    def __init__(self, folder):
        self.binaries, self.tools, self.results = folder / "binaries", folder / "tools", folder / "results"
        for name, text in {
            "binaries/gnomon": 'echo "gnomon $*"; [[ $1 != info ]] || echo "\\"cuda:0\\""',
            "binaries/gnomon_test_cuda": 'echo "[  PASSED  ] shard $GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS, arch ${GNOMON_CUDA_ARCH:-own}, $*"',
            "binaries/gnomon_cuda_resident": 'echo "resident #1 split-c8"',
            "tools/nvidia-smi": 'echo "GPU 0: A GPU (UUID: x)"',
            "tools/compute-sanitizer": 'echo "sanitizer $*"',
            "tools/python-of-it": 'echo "python $*"',
        }.items():
            self.program(folder / name, text)
        self.environment = {**os.environ, "PATH": f"{self.tools}:{os.environ['PATH']}", "PYTHON": str(self.tools / "python-of-it")}
        self.environment.pop("GNOMON_KERNEL_CACHE", None)

    @staticmethod
    def program(path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, *steps, options=(), code=0):
        command = ["bash", ROOT / "bench" / "gpu.sh", *options, self.binaries, self.results, *steps]
        done = subprocess.run([str(word) for word in command], env=self.environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        summary = self.results / "summary.txt"
        return done, dict(line[3:].split(maxsplit=1) for line in summary.read_text().splitlines()) if summary.exists() else {}


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"  # ended, and nobody asked how
    except OSError:
        return False


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_all_steps_run_with_what_they_need(machine):
    _, summary = machine.run()
    assert len(summary) == 13 and all(verdict.startswith("passed, ") for verdict in summary.values()), summary
    text = {path.name: path.read_text() for path in machine.results.iterdir()}
    assert text["device.txt"].startswith("GPU 0: A GPU\ncommit ")
    assert "shard 7 of 8, arch own, --gtest_brief=1 --gtest_filter=-Kernels/*:*MemoryStaysFlat*" in text["tests-shard7.txt"]
    assert "shard  of , arch own, --gtest_filter=*MemoryStaysFlat*" in text["tests.txt"], "beside nobody else"
    assert "--gtest_filter=ResidentSplit.*" in text["split.txt"] and "resident #1 split-c8" in text["split.txt"]
    assert "arch compute_80" in text["portable-shard0.txt"] and "PASSED" in text["portable.txt"]
    assert "sanitizer --tool racecheck --error-exitcode 1" in text["racecheck-shard7.txt"]
    assert "--report-api-errors no" in text["memcheck-shard0.txt"]
    assert "gnomon bench --device cuda:0 --budget 200 --json" in text["bench.txt"]
    assert "-m gnomon.bench --device cuda --budget 360 --json" in text["peers.txt"]
    assert "shape14.py --dtype f32" in text["shape14-f32.txt"]
    assert "gnomon bench --device cuda:0 --first-calls --only 1,2,3,4,5,6,7,8,9,10,11,12,13 --json" in text["first-calls.txt"]
    assert "CudaGuard*:ResidentPortable.*:-" in text["portable-shard0.txt"]


def test_the_commit_may_be_told(machine):
    machine.environment["COMMIT"] = "0123456789ab"
    machine.run("info", "bench")
    assert (machine.results / "device.txt").read_text().endswith("commit 0123456789ab\n")
    assert "commit=0123456789ab" in (machine.results / "bench.txt").read_text()


def test_a_step_that_hangs_is_ended_with_all_it_started(machine):
    machine.program(machine.binaries / "gnomon_test_cuda", 'trap "" TERM; echo $$ >> "$results/pids"; sleep 600')
    _, summary = machine.run("tests", "bench", options=["-l", "tests=1"], code=1)
    assert summary["tests"] == "ended by its limit of 1 s" and summary["bench"].startswith("passed")
    pids = (machine.results / "pids").read_text().split()
    assert len(pids) == 8 and not any(map(alive, pids)), "a shard lives on"


def test_a_step_that_fails_costs_no_other(machine):
    machine.program(machine.binaries / "gnomon_test_cuda", '[[ $GTEST_SHARD_INDEX == 3 ]] && { echo "[  FAILED  ] Some.Test"; exit 1; }; exit 0')
    done, summary = machine.run("tests", "info", code=1)
    assert summary["tests"].startswith("FAILED (exit 1)") and summary["info"].startswith("passed")
    assert "shard 3: exit 1" in done.stdout and "Some.Test" in done.stdout


def test_what_is_missing_is_said(machine):
    machine.program(machine.tools / "python-of-it", "exit 1")
    (machine.tools / "compute-sanitizer").unlink()
    machine.environment["CUDA_HOME"] = "/nowhere"
    _, summary = machine.run("memcheck", "peers", "info", code=1)
    machine.program(machine.binaries / "gnomon", "echo nothing")
    _, without_device = machine.run("tests", "portable", code=1)
    assert {without_device[step] for step in ("tests", "portable")} == {"not run: gnomon info shows no CUDA device"}
    assert summary["memcheck"] == "not run: compute-sanitizer is not installed"
    assert "no PyTorch that finds a GPU" in summary["peers"] and summary["info"].startswith("passed")


def test_what_there_is_no_time_for_is_not_begun(machine):
    _, summary = machine.run("bench", "info", options=["-t", "5", "-l", "info=3"], code=1)
    assert summary["bench"].startswith("not run: ") and summary["bench"].endswith(" of 5 s are left")
    assert summary["info"].startswith("passed"), "its own limit is shorter than what is left"


def test_kernels_that_were_compiled_ahead_are_used(machine):
    (machine.binaries / "kernels").mkdir()
    (machine.binaries / "kernels" / "a.kernel").write_text("x")
    machine.program(machine.binaries / "gnomon", 'ls "$GNOMON_KERNEL_CACHE"')
    machine.run("info")
    assert "a.kernel" in (machine.results / "info.txt").read_text()


def test_wrong_words(machine):
    assert "no step 'nothing'" in machine.run("nothing", code=2)[0].stderr
    assert "expected STEP=SECONDS" in machine.run("info", options=["-l", "nothing=3"], code=2)[0].stderr
    listed = subprocess.run(["bash", str(ROOT / "bench" / "gpu.sh"), "-h"], capture_output=True, text=True, check=True).stdout
    assert listed.startswith("Everything that is measured on a GPU") and "shape14-f32   150 s  shape 14 in fp32" in listed
