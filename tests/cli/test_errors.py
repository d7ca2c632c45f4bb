"""Mistakes: the exit code, one line on stderr with the values and what to do, JSON when it was asked for."""

import json
import os
import resource
import subprocess

import pytest

from conftest import BUILD

CALLER, ENVIRONMENT = 2, 3


@pytest.mark.parametrize("words, expected", [
    ([], "Exit codes"),
    (["bensh"], "did you mean `bench`"),
    (["bench", "--quik"], "did you mean `--quick`"),
    (["bench", "--budget", "-4"], "--budget"),
    (["explain"], "PROBLEM"),
    (["explain", "b2 s3 d16 h3"], "16"),
    (["explain", "b2 s3 casual"], "did you mean `causal`"),
    (["explain", "b2 s3 d16 h2", "--effort", "mesure"], "mesure"),
    (["explain", "b2 s3 d16 h2 l1 f8", "--stored"], "leave --stored away"),
    (["plans", "forget"], "--all"),
    (["plans", "show", "b2 s3"], "gnomon plans list"),
    (["completion", "tcsh"], "tcsh"),
    (["bench", "--model", "MiniLM"], "NAME=PATH"),
    (["verify", "b2 s3 d16 h2 l1 f8", "-n", "0"], "samples"),
    (["verify", "b2 s3 d16 h2 l1 f8", "--seed", "-1"], "--seed"),
    (["explain", "b2 s3 d16 h2 l1 f8", "--seed", "1.5"], "--seed"),
    (["bench", "--budget", "nan"], "nan"),
    (["bench", "--budget", "inf"], "inf"),
    (["bench", "--budget", "0"], "--budget"),
    (["explain", "b2 s3 d16 h2 l1 f8", "--plan-budget", "nan"], "nan"),
    (["explain", "b2 s3 d16 h2 l1 f8 eps=1e-39"], "1.1754944e-38"),
    (["explain", "b2 s3 d16 h2 l1 f8 eps=1e39"], "3.4028235e+38"),
])
def test_callers_errors(gnomon, words, expected):
    done = gnomon(*words, code=CALLER)
    assert expected in done.stderr + done.stdout
    assert "Traceback" not in done.stderr and "terminate" not in done.stderr


@pytest.mark.parametrize("words", [
    ["run", "missing.safetensors", "-i", "missing.npy", "-o", "y.npy"],
    ["bench", "--suite", "missing.json"],
    ["bench", "--model", "M=missing.safetensors"],
    ["plans", "import", "missing.json"],
    ["plans", "import", "."],
    ["plans", "export", "."],
    ["plans", "export", "/dev/full"],
    ["bench", "--suite", "."],
    ["bench", "b1 s2 d8 h2 l1 f8", "--budget", "2", "--json", "/dev/full"],
    ["bench", "b1 s2 d8 h2 l1 f8", "--budget", "2", "--csv", "/dev/full"],
    ["explain", "b1 s2 d8 h2 l1 f8 @cuda:0"],
])
def test_environment_errors(gnomon, words):
    done = gnomon(*words, code=ENVIRONMENT)
    assert done.stderr.startswith("gnomon: ") and len(done.stderr.splitlines()) == 1


SMALL = "b1 s2 d8 h2 l1 f8"


@pytest.mark.parametrize("words", [
    ["info"], ["info", "--json"], ["--help"], ["--version"], ["completion", "bash"], ["plans", "list"], ["plans", "list", "--json"],
    ["plans", "export"], ["plans", "show", SMALL], ["explain", SMALL], ["explain", SMALL, "--json"], ["explain", "b1 d7 h2", "--json"],
    ["verify", SMALL, "-n", "1", "--json"], ["bench", SMALL, "--budget", "2"], ["bench", SMALL, "--budget", "2", "--json", "-"],
])
def test_results_that_a_full_device_took_are_lost(gnomon, words):
    gnomon("explain", SMALL, "--effort", "estimate")
    with open("/dev/full", "w") as full:
        done = subprocess.run([BUILD / "gnomon", *words], stdout=full, stderr=subprocess.PIPE, text=True, env=gnomon.environment, cwd=gnomon.folder)
    assert done.returncode == ENVIRONMENT and "terminate" not in done.stderr
    assert "No space left" in done.stderr or "took not all of the output" in done.stderr


@pytest.mark.parametrize("closed", [(1,), (2,), (0, 1, 2)], ids=str)
def test_closed_streams(gnomon, closed):
    """What is printed must not end in a file that got the number of a closed stream."""
    words = [BUILD / "gnomon", "verify", SMALL, "-n", "1"]
    done = subprocess.run(words, env=gnomon.environment, cwd=gnomon.folder, preexec_fn=lambda: [os.close(stream) for stream in closed])
    assert done.returncode == (ENVIRONMENT if 1 in closed else 0)
    gnomon("explain", SMALL, "--stored")


def test_a_limit_of_file_size_is_a_reason_and_no_end(gnomon):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (512, resource.RLIM_INFINITY))  # noqa: E731
    done = gnomon("verify", SMALL, "-n", "1", preexec_fn=limit)
    assert "plans cannot be saved" in done.stderr and "File too large" in done.stderr


def test_a_bench_in_which_nothing_ran(gnomon):
    done = gnomon("bench", "b32 s1000000 d1024 h16 f4096", "--budget", "3", code=ENVIRONMENT)
    assert "not run: memory" in done.stdout


def test_a_forced_precision_that_breaks_the_contract_is_the_callers(gnomon):
    # No two orders of summation agree to 1e-12: fused attention is out of contract in every candidate.
    done = gnomon("explain", "b2 s5 d16 h2 l2 f48 abs=1e-12 rel=1e-12", "--force", "fused_attention=on", code=CALLER)
    assert "under fused_attention=on" in done.stderr and "of the limit" in done.stderr


def test_errors_are_json_when_results_are(gnomon):
    done = gnomon("explain", "b2 s3 d16 h3", "--json", code=CALLER)
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "caller" and "16" in error["message"]


def test_a_bad_suite_is_named(gnomon, tmp_path):
    (tmp_path / "suite.json").write_text('{"shapes": [{"id": 1}]}')
    assert "suite.json is no suite file" in gnomon("bench", "--suite", "suite.json", code=CALLER).stderr


@pytest.mark.parametrize("command", ["bench", "run", "explain", "verify", "plans", "kernels", "info", "completion"])
def test_help_teaches_with_examples(gnomon, command):
    help_text = gnomon(command, "--help").stdout
    assert "Examples:" in help_text and f"gnomon {command}" in help_text


@pytest.mark.parametrize("problem", ["b2 s3 d65 h4", "b2 q33"])
def test_a_wrong_size_is_not_taken_for_a_misspelt_word(gnomon, problem):
    assert "did you mean" not in gnomon("explain", problem, code=CALLER).stderr
