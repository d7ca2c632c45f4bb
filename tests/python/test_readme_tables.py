"""The README's tables come from measured files, and a README that is out of date fails here."""

import json

import pytest

import readme_tables

PEERS = {
    "date": "2026-01-02T03:04:05+00:00",
    "commit": "abc",
    "machine": {"cpu": "A CPU", "family": "1", "model": "2", "cores": 2},
    "shapes": [
        {
            "id": 1,
            "problem": "b1 s100",
            "peers": {
                "gnomon": {
                    "about": {"version": "0.1.0"},
                    "ms": {"median": 0.5, "low": 0.4, "high": 0.6},
                    "contract": {"holds": True},
                },
                "ort": {
                    "about": {"version": "9.9"},
                    "ms": {"median": 1.0, "low": 0.9, "high": 1.1},
                    "contract": {"holds": True},
                    "ratio": {"median": 2.0, "low": 1.9, "high": 2.1},
                },
                "torch": {"skipped": "memory: too little"},
            },
        },
        {"id": 7, "problem": "b10000 s100", "skipped": "time: too little"},
    ],
    "geometric_means": {"ort": {"ratio": 2.0}},
}
QUARTILES = {"low": 0.001, "median": 0.002, "high": 0.003}
BENCH = {
    "gnomon": "0.1.0",
    "date": "2026-01-02T03:04:05Z",
    "libraries": {"oneDNN": "2.6.3"},
    "notes": {"commit": "abc"},
    "seconds": 12.0,
    "machine": {"cpu": "A CPU", "family": 1, "model_number": 2, "cores": 2, "isa": "AVX3"},
    "rows": [
        {
            "id": "1",
            "problem": "b1 s100",
            "not_run": None,
            "plan": "fused_qkv=on,slices=4,graph=off",
            "seconds": QUARTILES,
            "flops_per_second": 2e11,
            "of_bare": 0.9,
            "plain_seconds": QUARTILES,
            "speedup": QUARTILES | {"median": 2.5},
            "worst": 0.01,
            "out_of_contract": 0,
            "fault": "",
            "scratch_of_activation": 0.05,
        },
        {"id": "14", "problem": "b32 s100000", "not_run": "memory"},
    ],
    "geometric_mean_speedup": 2.5,
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results" / "box").mkdir(parents=True)
    for name, content in (("peers", PEERS), ("bench", BENCH)):
        (tmp_path / "results" / "box" / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


def run(folder, *arguments):
    return readme_tables.main(["--readme", str(folder / "README.md"), "--results", str(folder / "results"), *arguments])


def write(folder, text):
    (folder / "README.md").write_text(text)


def block(name, body=""):
    return f"<!-- begin: {name} -->\n{body}<!-- end: {name} -->"


def test_tables_are_written_and_then_up_to_date(folder):
    write(folder, f"before\n{block('box/peers')}\nbetween\n{block('box/bench', 'stale')}\nafter\n")
    assert run(folder, "--check") == 1
    assert run(folder) == 0
    assert run(folder, "--check") == 0
    text = (folder / "README.md").read_text()
    assert text.startswith("before\n") and text.endswith("\nafter\n") and "\nbetween\n" in text and "stale" not in text
    assert "| 1 | `b1 s100` | 0.5 (0.4–0.6) | 1 (0.9–1.1) | – | 2.00× | – |" in text
    assert "Shape 7 was skipped: time: too little." in text and "PyTorch as it comes: memory: too little." in text
    assert "`slices=4` without `graph` | 2 (1–3) | 200 | 90 % | 2 (1–3) | 2.50× | 0.010 | 5 % |" in text
    assert "not run: memory" in text


def test_a_changed_figure_is_out_of_date(folder):
    write(folder, block("box/peers"))
    run(folder)
    changed = json.loads(json.dumps(PEERS).replace("0.5,", "0.55,"))
    (folder / "results" / "box" / "peers.json").write_text(json.dumps(changed))
    assert run(folder, "--check") == 1


@pytest.mark.parametrize(
    "text, message",
    [
        (block("box/nothing"), "expected a table of"),
        (block("elsewhere/peers"), "measure first"),
        ("<!-- begin: box/peers -->\nno end", "alone"),
        ("<!-- end: box/peers -->", "alone"),
    ],
)
def test_a_table_that_cannot_be_made_is_an_error(folder, capsys, text, message):
    write(folder, text)
    assert run(folder) == 1
    assert message in capsys.readouterr().err
    assert (folder / "README.md").read_text() == text


def test_the_readme_is_up_to_date(capsys):
    assert readme_tables.main(["--check"]) == 0, capsys.readouterr().err
