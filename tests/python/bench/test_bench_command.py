"""python -m gnomon.bench from its arguments to its files."""

import json
import re
from html.parser import HTMLParser

import pytest
import torch

import gnomon
from gnomon._bench import command, peers
from gnomon._bench.peers import Peer, Ready
from gnomon._bench.shared import load_suite


@pytest.fixture
def suite(tmp_path, library):
    limits, _ = load_suite()
    shapes = [
        {"id": 1, "B": 2, "S": 8, "d_model": 32, "n_heads": 2, "n_layers": 1, "d_ff": 64},
        {"id": 2, "B": 3, "S": 70000, "d_model": 64, "n_heads": 16, "n_layers": 1, "d_ff": 64},
    ]
    path = tmp_path / "suite.json"
    path.write_text(json.dumps({"contract": limits, "shapes": shapes}))
    return path


def run(tmp_path, suite, *arguments):
    """The exit status and the results of a short run on the first shape, unless told otherwise."""
    out = tmp_path / "out.json"
    short = ["--shapes", "1", "--rounds", "3", "--slot", "0.01", "--budget", "200", "--device", "cpu", "--peers", "gnomon,by-hand,encoder"]
    files = ["--suite", str(suite), "--plan-dir", str(tmp_path / "plans"), "--json", str(out), "--html", str(tmp_path / "out.html")]
    status = command.main([*short, *files, "--option", "budget=1", "--option", "threads=1", *arguments])
    return status, json.loads(out.read_text())


def rows_of(results, shape=0):
    return {row["name"]: row for row in results["shapes"][shape]["rows"]}


def test_a_whole_run(tmp_path, suite, capsys):
    status, results = run(tmp_path, suite)
    assert status == 0, capsys.readouterr().out
    rows = rows_of(results)
    assert list(rows) == ["reference", "gnomon", "by-hand", "encoder"]
    for name, row in rows.items():
        assert row["seconds"]["low"] <= row["seconds"]["median"] <= row["seconds"]["high"], name
        assert row["worst"] <= 1.0 and row["out_of_contract"] == 0 and row["elements"] == 2 * 8 * 32, name
        assert ("speedup" in row) == (name != "reference") and ("of_gnomon" in row) == (name != "gnomon")
    assert rows["gnomon"]["record"]["plans"][0]["problem"].startswith("b2 s8")
    assert results["geometric_means"]["gnomon"]["speedup"] == pytest.approx(rows["gnomon"]["speedup"]["median"])
    assert results["shapes"][0]["rounds"] == 3
    assert results["torch"]["version"] == torch.__version__ and results["commit"] and results["machine"]["cores"] > 0
    overhead = results["overhead"]
    assert 0 < overhead["weights_test_us"]["median"] < overhead["python_us"]["median"] < 1000
    text = capsys.readouterr().out
    assert "shape 1: b2 s8" in text and "by-hand" in text and "geometric mean" in text


class Resources(HTMLParser):
    """Everything in a page that a browser would fetch, and whether its tags close."""

    def __init__(self):
        super().__init__()
        self.fetched, self.open, self.charts = [], [], 0

    def handle_starttag(self, tag, attrs):
        self.charts += tag == "svg"
        self.fetched += [f"{tag} {k}={v}" for k, v in attrs if k in ("src", "href", "data", "srcset")]
        self.fetched += [tag] if tag in ("script", "link", "iframe", "img") else []
        if tag not in ("meta", "rect", "path", "line", "i"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in self.open:
            assert self.open.pop() == tag


def test_the_page_needs_nothing_else_and_shows_each_figure(tmp_path, suite):
    _, results = run(tmp_path, suite)
    page = (tmp_path / "out.html").read_text()
    reader = Resources()
    reader.feed(page)
    assert reader.fetched == [] and reader.open == [] and reader.charts == 2
    assert "url(" not in page and "@import" not in page and "prefers-color-scheme: dark" in page
    for row in results["shapes"][0]["rows"]:
        assert row["name"] in page
    assert re.search(r'class="ours".*?class="whisker"', page, re.S)


def test_a_peer_that_fails_or_cannot_run_is_a_row_with_its_reason(tmp_path, suite, monkeypatch, capsys):
    def explode(work):
        raise RuntimeError("it blew up\nand left a trace")

    def wrong(work):
        answer = work.truth.clone()
        answer[0, 0, 0] += 1.0
        return Ready(lambda: answer)

    extra = [
        Peer("broken", "fails", explode),
        Peer("refusing", "cannot", explode, refuse=lambda setting: "not on <this> machine"),
        Peer("wrong", "breaks the contract", wrong),
    ]
    monkeypatch.setattr(peers, "ALL", [*peers.ALL, *extra])
    monkeypatch.setattr(peers, "NAMES", [*peers.NAMES, *[p.name for p in extra]])
    status, results = run(tmp_path, suite, "--peers", "gnomon,broken,refusing,wrong")
    rows = rows_of(results)
    assert status == 0
    assert rows["broken"]["failed"] == "RuntimeError: it blew up" and "seconds" not in rows["broken"]
    assert rows["refusing"]["refused"] == "not on <this> machine"
    assert rows["wrong"]["worst"] > 1 and rows["wrong"]["out_of_contract"] == 1
    assert "1 OUT" in capsys.readouterr().out
    page = (tmp_path / "out.html").read_text()
    assert "not on &lt;this&gt; machine" in page and 'class="broken"' in page


def test_a_fallback_never_passes_for_gnomon(tmp_path, suite, monkeypatch):
    optimize = gnomon.optimize

    def hooked(module, **options):
        module.layers[0].fc1.register_forward_hook(lambda *arguments: None)
        return optimize(module, **options)

    monkeypatch.setattr(gnomon, "optimize", hooked)
    status, results = run(tmp_path, suite)
    row = rows_of(results)["gnomon"]
    assert status == 1
    assert "fell back" in row["refused"] and "hook" in row["refused"] and "seconds" not in row
    assert "not_run" in results["overhead"]


def test_a_shape_that_goes_wrong_as_a_whole_is_not_passed_over(tmp_path, suite, monkeypatch):
    def explode(self, seconds):
        raise RuntimeError("it blew up")

    monkeypatch.setattr(command.Session, "run", explode)
    status, results = run(tmp_path, suite)
    assert status == 1 and results["shapes"][0]["not_run"] == "RuntimeError: it blew up"
    assert results["arguments"][:2] == ["--shapes", "1"]


def test_shapes_beyond_budget_or_memory_are_listed(tmp_path, suite):
    status, results = run(tmp_path, suite, "--shapes", "1,2", "--budget", "0.5")
    assert status == 0
    assert [shape["id"] for shape in results["shapes"]] == [1, 2]
    assert "budget" in results["shapes"][1]["not_run"]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--peers", "nobody"], "no peer is called 'nobody'"),
        (["--device", "tpu"], "expected cpu, cuda or cuda:N"),
        (["--option", "budget"], "expected NAME=VALUE"),
        (["--shapes", "a"], "expected numbers and ranges as 1-6,8, got 'a'"),
        (["--shapes", "1,3-2"], "got '3-2'"),
        (["--shapes", "1,77"], "--shapes [77]: the suite has [1, 2, 3"),
        (["--rounds", "0"], "--rounds 0: expected at least 1"),
    ],
)
def test_wrong_arguments_are_refused(arguments, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main(arguments)
    assert stopped.value.code == 2 and message in capsys.readouterr().err


def test_half_precision_modules_are_judged_by_their_fp32_twin(tmp_path, suite):
    _, results = run(tmp_path, suite, "--dtype", "bf16", "--peers", "gnomon,reference-half")
    rows = rows_of(results)
    assert "already" in rows["reference-half"]["refused"] and results["protocol"]["dtype"] == "bfloat16"
    assert rows["reference"]["worst"] > 0.0
