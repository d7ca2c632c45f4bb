"""`gnomon kernels`: fills, shows and empties the cache of compiled kernels; no GPU is needed."""

import json
import subprocess

import pytest

from conftest import BUILD

FEW = "b1 s4 d512 h1 l1 f16"  # its head is too wide for our attention, whose kernels are most of others' time


def compiler_missing():
    cuda = json.loads(subprocess.run([str(BUILD / "gnomon"), "info", "--json"], capture_output=True, text=True, check=True).stdout)["cuda"]
    if "libraries" not in cuda:
        return cuda["missing"]
    return cuda["libraries"]["NVRTC"] if cuda["libraries"]["NVRTC"].startswith("missing") else None


@pytest.fixture
def compiler():
    if reason := compiler_missing():
        pytest.skip(reason)


def test_what_was_compiled_once_is_not_compiled_again(gnomon, compiler, tmp_path):
    first = gnomon.json("kernels", "--precompile", "sm_80,compute_80", FEW, "--json")
    assert first["compiled"] == len(first["kernels"]) > 10 and first["from_cache"] == first["failed"] == 0 and first["missed"] == []
    assert {k["architecture"] for k in first["kernels"]} == {"sm_80", "compute_80"}
    for kernel in first["kernels"]:
        assert kernel["seconds"] > 0 and (tmp_path / "kernels" / f"{kernel['key']}.kernel").exists()
        assert ("registers" in kernel) == (kernel["architecture"] == "sm_80")
        assert kernel.get("registers", 1) > 0 and kernel.get("spilled_bytes", 0) == 0
    again = gnomon.json("kernels", "--precompile", "sm_80", "--precompile", "compute_80", FEW, "--json", "--threads", "1")
    assert again["compiled"] == 0 and again["from_cache"] == len(first["kernels"])
    assert [k["key"] for k in again["kernels"]] == [k["key"] for k in first["kernels"]]

    text = gnomon("kernels", "--precompile", "sm_80", FEW).stdout
    assert "registers" in text.splitlines()[0] and ": 0 compiled, " in text and "norm.cuh: norm_rows<" in text

    listed = gnomon.json("kernels", "--json")
    assert len(listed["files"]) == len(first["kernels"]) and listed["bytes"] == sum(file["bytes"] for file in listed["files"])
    assert {file["architecture"] for file in listed["files"]} == {"sm_80", "compute_80"}
    assert all(file["compiler"].startswith("NVRTC ") for file in listed["files"])
    assert f"{len(first['kernels'])} compiled kernels" in gnomon("kernels").stdout
    assert gnomon.json("kernels", "--clear", "--json")["removed"] == len(first["kernels"])
    assert gnomon.json("kernels", "--json")["files"] == []


def test_a_cache_elsewhere(gnomon, compiler, tmp_path):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.kernel").write_text("gnomon kernel 1\n")
    assert "x.kernel is of another version of Gnomon" in gnomon("kernels", "--cache", "other").stdout
    assert "1 file, " in gnomon("kernels", "--cache", "other", "--clear").stdout
    (tmp_path / "file").write_text("in the way")
    done = gnomon("kernels", "--precompile", "sm_80", FEW, "--cache", "file", "--json", code=3)
    assert "did not become files in file" in done.stderr


@pytest.mark.parametrize("words, expected", [
    ([FEW], "problems are for --precompile"),
    (["--suite"], "problems are for --precompile"),
    (["--precompile", "sm_90a"], "for which problems?"),
    (["--precompile", "sm_90a", "--suite", "--clear"], "two commands"),
    (["--precompile", "sm_90", FEW], "a device of compute capability 9.0 takes sm_90a"),
    (["--precompile", "sm_99", FEW], "known are sm_80, "),
    (["--precompile", "hopper", FEW], "expected sm_80"),
    (["--precompile", "sm_80", "b1 x3"], "x3"),
    (["--threads", "0"], "--threads"),
])
def test_wrong_arguments(gnomon, compiler, words, expected):
    done = gnomon("kernels", *words, code=2)
    assert expected in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_a_backend_it_is_the_environment(gnomon):
    gnomon.environment["GNOMON_CUDA_PLUGIN"] = "/nowhere/libgnomon-cuda.so"
    for words in ([], ["--clear"], ["--precompile", "sm_80", "--suite"]):
        done = gnomon("kernels", *words, code=3)
        assert "/nowhere/libgnomon-cuda.so" in done.stderr and len(done.stderr.splitlines()) == 1


def test_without_a_folder_it_is_the_environment(gnomon, compiler):
    gnomon.environment["GNOMON_KERNEL_CACHE"] = ""
    assert "name a folder by --cache" in gnomon("kernels", code=3).stderr
