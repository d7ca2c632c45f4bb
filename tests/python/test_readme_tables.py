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



def dropin_row(name, median, **more):
    spread = {"low": 0.9 * median, "median": median, "high": 1.1 * median}
    return {"name": name, "title": name, "seconds": spread, "worst": 0.1, "out_of_contract": 0, **more}


def of_gnomon(ratio):
    return {"of_gnomon": {"low": ratio, "median": ratio, "high": ratio}}


DROPIN = {
    "gnomon": "0.1.0",
    "date": "2026-01-02T03:04:05Z",
    "commit": "abc",
    "seconds": 12.0,
    "machine": PEERS["machine"],
    "protocol": {"device": "cpu"},
    "torch": {"version": "1.13", "threads": 1, "blas": "a BLAS"},
    "peers": [{"name": name} for name in ("reference", "gnomon", "by-hand", "sdpa", "reference-half")],
    "overhead": {"python_us": {"median": 12.3}, "weights_test_us": {"median": 7.0}, "parameters": 48},
    "shapes": [
        {
            "id": 1,
            "problem": "b1 s100",
            "rows": [
                dropin_row("reference", 0.004, **of_gnomon(4.0)),
                dropin_row("gnomon", 0.001),
                dropin_row("by-hand", 0.002, **of_gnomon(2.0)),
                {"name": "sdpa", "title": "sdpa", "refused": "came with PyTorch 2.0"},
                {**dropin_row("reference-half", 0.0005, **of_gnomon(0.5)), "worst": 3.0},
            ],
        },
        {"id": 2, "problem": "b2 s100", "rows": [{"name": "gnomon", "title": "Gnomon", "refused": "fell back"}]},
        {"id": 14, "problem": "b32 s100000", "not_run": "memory"},
    ],
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results" / "box").mkdir(parents=True)
    for name, content in (("peers", PEERS), ("bench", BENCH), ("dropin", DROPIN)):
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


def test_a_bench_of_a_device_names_it_and_the_host(folder):
    device = {"name": "A GPU", "compute_capability": "9.0", "multiprocessors": 132, "memory_bytes": 140 * 2**30}
    for name, caption in (("cpu", "\nA CPU (family 1, model 2), 2 cores, AVX3; Gnomon 0.1.0, oneDNN 2.6.3;"),
                          ("cuda:0", "\nA GPU (compute capability 9.0, 132 multiprocessors, 140 GiB); host: A CPU (family 1, model 2), 2 cores")):
        (folder / "results" / "box" / "bench.json").write_text(json.dumps({**BENCH, "devices": {name: device}}))
        write(folder, block("box/bench"))
        assert run(folder) == 0
        assert caption in (folder / "README.md").read_text()


def test_the_drop_in_is_compared_with_the_best_that_keeps_the_contract(folder):
    write(folder, block("box/dropin"))
    assert run(folder) == 0
    text = (folder / "README.md").read_text()
    figures = "| 1 (0.9–1.1) | 4 (3.6–4.4) | 2 (1.8–2.2) | 0.5 (0.45–0.55) ✗ | 4.00× | 2.00× (by hand in PyTorch) | 0.100 |"
    assert figures in text and "with SDPA" not in text
    assert "| 2 | `b2 s100` | not run: gnomon: fell back |" in text and "not run: memory" in text
    assert "**4.00×** | **2.00×**" in text and "12.3 µs" in text and "threads: 1" in text


def test_a_shape_that_was_not_reached_comes_from_a_run_of_its_own(folder):
    alone = {**DROPIN, "commit": "def", "shapes": [{**DROPIN["shapes"][0], "id": 14, "problem": "b32 s100000"}]}
    path = folder / "results" / "box" / "dropin-shape-14.json"
    path.write_text(json.dumps(alone))
    write(folder, block("box/dropin"))
    assert run(folder) == 0
    text = (folder / "README.md").read_text()
    assert "| 14 | `b32 s100000` | 1 (0.9–1.1) |" in text and "In a run of its own: #14 (commit def, 12 s)." in text
    path.write_text(json.dumps({**alone, "torch": {**alone["torch"], "version": "2.0"}}))
    with pytest.raises(readme_tables.TableError, match="'version': '1.13'.*got one on.*'version': '2.0'"):
        readme_tables.dropin_table(folder / "results" / "box")
    path.write_text(json.dumps({**alone, "shapes": DROPIN["shapes"]}))
    with pytest.raises(readme_tables.TableError, match="expected the shape b32 s100000 alone"):
        readme_tables.dropin_table(folder / "results" / "box")


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
