"""Mistakes: the exit code, one line on stderr with the values and what to do, JSON when it was asked for."""

import json

import pytest

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
    ["explain", "b1 s2 d8 h2 l1 f8 @cuda:0"],
])
def test_environment_errors(gnomon, words):
    done = gnomon(*words, code=ENVIRONMENT)
    assert done.stderr.startswith("gnomon: ") and len(done.stderr.splitlines()) == 1


def test_errors_are_json_when_results_are(gnomon):
    done = gnomon("explain", "b2 s3 d16 h3", "--json", code=CALLER)
    error = json.loads(done.stdout)["error"]
    assert error["kind"] == "caller" and "16" in error["message"]


def test_a_bad_suite_is_named(gnomon, tmp_path):
    (tmp_path / "suite.json").write_text('{"shapes": [{"id": 1}]}')
    assert "suite.json is no suite file" in gnomon("bench", "--suite", "suite.json", code=CALLER).stderr


@pytest.mark.parametrize("command", ["bench", "run", "explain", "verify", "plans", "info", "completion"])
def test_help_teaches_with_examples(gnomon, command):
    help_text = gnomon(command, "--help").stdout
    assert "Examples:" in help_text and f"gnomon {command}" in help_text


@pytest.mark.parametrize("problem", ["b2 s3 d65 h4", "b2 q33"])
def test_a_wrong_size_is_not_taken_for_a_misspelt_word(gnomon, problem):
    assert "did you mean" not in gnomon("explain", problem, code=CALLER).stderr
