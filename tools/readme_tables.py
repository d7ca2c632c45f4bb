#!/usr/bin/env python3
"""Writes the README's tables from the measured files of bench/results/, between markers:

    <!-- begin: MACHINE/TABLE -->
    <!-- end: MACHINE/TABLE -->

stands for the file bench/results/MACHINE/TABLE.json (explain: .txt); TABLE is one of those below. With --check nothing is written, and
a README that differs from what would be written is an error. A table that no file supports is an error too.
"""

import argparse
import difflib
import json
import re
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BLOCK = re.compile(
    r"(?P<begin><!-- begin: (?P<name>(?P<machine>\S+)/(?P<table>\S+)) -->\n).*?(?P<end><!-- end: (?P=name) -->)", re.S
)
MARKER = re.compile(r"<!-- (?:begin|end): .*?-->")


EXPLAIN_LINES, EXPLAIN_COLUMNS = 24, 180


class TableError(ValueError):
    pass


def markdown(header: list[str], rows: list[list[str]], right: int) -> str:
    """A table whose columns from number `right` on are aligned to the right."""
    rule = ["---" if column < right else "---:" for column in range(len(header))]
    return "".join("| " + " | ".join(row) + " |\n" for row in [header, rule, *rows])


def milliseconds(ms: float) -> str:
    return f"{ms:,.0f}" if ms >= 100 else f"{ms:.3g}"


def spread(value: dict, show) -> str:
    return f"{show(value['median'])} ({show(value['low'])}–{show(value['high'])})"


def times(ratio: float) -> str:
    return f"{ratio:.2f}×"


PEER_TITLES = {
    "gnomon": "Gnomon",
    "ort": "ONNX Runtime, fused",
    "torch_tuned": "PyTorch, tuned",
    "torch": "PyTorch as it comes",
}


def peers_cell(shape: dict, name: str, field: str) -> str:
    peer = shape.get("peers", {}).get(name, {})
    if field not in peer:
        return "–"
    broken = "" if peer.get("contract", {}).get("holds") else " ✗"
    return (spread(peer["ms"], milliseconds) if field == "ms" else times(peer["ratio"]["median"])) + broken


def peers_notes(results: dict) -> list[str]:
    notes = []
    for shape in results["shapes"]:
        if "skipped" in shape:
            notes.append(f"Shape {shape['id']} was skipped: {shape['skipped']}.")
        for name, peer in shape.get("peers", {}).items():
            reason = peer.get("failed") or peer.get("skipped")
            if reason:
                notes.append(f"Shape {shape['id']}, {PEER_TITLES.get(name, name)}: {reason}.")
    return notes


def peers_table(folder: Path) -> str:
    """Gnomon and its peers, from peers.json."""
    results = load(folder / "peers.json")
    names = list(dict.fromkeys(name for shape in results["shapes"] for name in shape.get("peers", {})))
    if not names:
        raise TableError(f"expected at least one measured shape in {folder / 'peers.json'}, got none")
    others = names[1:]
    header = [
        "#",
        "problem",
        *[f"{PEER_TITLES.get(n, n)}, ms" for n in names],
        *[f"{PEER_TITLES.get(n, n)} / {PEER_TITLES.get(names[0], names[0])}" for n in others],
    ]
    rows = [
        [
            str(shape["id"]),
            f"`{shape['problem']}`",
            *[peers_cell(shape, n, "ms") for n in names],
            *[peers_cell(shape, n, "ratio") for n in others],
        ]
        for shape in results["shapes"]
    ]
    means = results["geometric_means"]
    rows.append(
        [
            "",
            "geometric mean",
            *[""] * len(names),
            *[f"**{times(means[n]['ratio'])}**" if n in means else "–" for n in others],
        ]
    )
    machine = results["machine"]
    versions = "; ".join(f"{PEER_TITLES.get(n, n)} {version}" for n in names if (version := peer_version(results, n)))
    text = markdown(header, rows, right=2)
    text += (
        f"\n{processor(machine, 'model')}; {versions}. "
        f"Medians of interleaved rounds (lowest–highest); commit {results['commit']}, {results['date'][:10]}.\n"
    )
    return text + "".join(f"{note}\n" for note in peers_notes(results))


def processor(machine: dict, model: str) -> str:
    return f"{machine['cpu']} (family {machine['family']}, model {machine[model]}), {machine['cores']} cores"


def measured_on(results: dict) -> str:
    """The devices that rows of a bench.json ran on, and the host; files of older versions name the host alone."""
    machine = results["machine"]
    host = f"{processor(machine, 'model_number')}, {machine['isa']}"
    devices = [facts for name, facts in results.get("devices", {}).items() if name != "cpu"]
    text = [
        f"{d['name']} (compute capability {d['compute_capability']}, {d['multiprocessors']} multiprocessors, "
        f"{d['memory_bytes'] / 2**30:.0f} GiB{', kernels for ' + d['architecture'] if 'architecture' in d else ''})"
        if "multiprocessors" in d
        else d["name"]
        for d in devices
    ]
    return "; ".join([*text, f"host: {host}"]) if devices else host


def peer_version(results: dict, name: str) -> str | None:
    return next(
        (
            peer["about"]["version"]
            for shape in results["shapes"]
            if "about" in (peer := shape.get("peers", {}).get(name, {}))
        ),
        None,
    )


def seconds_spread(value: dict | None) -> str:
    return "–" if value is None else spread({key: 1e3 * value[key] for key in ("median", "low", "high")}, milliseconds)


def choices(plan: str) -> str:
    """A candidate's text without what most have: what is off is named as such, `all` and fp32 are not."""
    words = dict(word.split("=", 1) for word in re.split(r"[ ,]+", plan.strip()))
    if words.get("path") == "plain":
        return "the reference path"
    plain_words = {"all", "fp32", "stack", "on", "off"}
    text = [f"`{name}={value}`" for name, value in words.items() if value not in plain_words]
    off = [f"`{name}`" for name, value in words.items() if value == "off"]
    return " ".join(text) + (f" without {', '.join(off)}" if off else "")


def bench_row(row: dict) -> list[str]:
    start = [row["id"], f"`{row['problem']}`"]
    if row["not_run"] is not None:
        return [*start, f"not run: {row['not_run']}", *[""] * 7]
    speedup = row["speedup"]
    return [
        *start,
        choices(row["plan"]),
        seconds_spread(row["seconds"]),
        f"{row['flops_per_second'] / 1e9:.0f}",
        f"{100 * row['of_bare']:.0f} %" if row["of_bare"] is not None else "–",
        seconds_spread(row["plain_seconds"]),
        times(speedup["median"]) if speedup else "–",
        f"{row['worst']:.3f}" + (" ✗" if row["out_of_contract"] or row["fault"] else ""),
        f"{100 * row['scratch_of_activation']:.0f} %",
    ]


def bench_table(folder: Path) -> str:
    """What `gnomon bench --json` found, from bench.json."""
    results = load(folder / "bench.json")
    header = [
        "#",
        "problem",
        "winning plan",
        "ms",
        "GFLOP/s",
        "of bare products",
        "reference path, ms",
        "speed-up",
        "worst error",
        "scratch",
    ]
    rows = [bench_row(row) for row in results["rows"]]
    mean = results["geometric_mean_speedup"]
    rows.append(["", "geometric mean", *[""] * 5, f"**{times(mean)}**" if mean else "–", "", ""])
    notes = "".join(f"; {name} {value}" for name, value in results["notes"].items())
    libraries = ", ".join(f"{name} {version}" for name, version in results["libraries"].items())
    return markdown(header, rows, right=3) + (
        f"\n{measured_on(results)}; Gnomon {results['gnomon']}, {libraries}{notes}; "
        f"{results['date'][:10]}, {results['seconds']:.0f} s. Medians (quartiles). Worst error: share of the "
        "contract's limit. Scratch: beyond input, output and weights, as share of the activation.\n"
    )


def explain_table(folder: Path) -> str:
    """The beginning of what `gnomon explain` printed, from explain.txt, as wide as a page shows."""
    path = folder / "explain.txt"
    if not path.exists():
        raise TableError(f"no {path}: keep there what `gnomon explain` prints")
    lines = path.read_text(encoding="utf-8").splitlines()
    return "```\n" + "".join(f"{line[:EXPLAIN_COLUMNS].rstrip()}\n" for line in lines[:EXPLAIN_LINES]) + "```\n"


DROPIN_TITLES = {
    "reference": "PyTorch eager",
    "reference-all-cores": "eager, all cores",
    "by-hand": "by hand in PyTorch",
    "encoder": "nn.TransformerEncoder",
    "sdpa": "with SDPA",
    "reference-autocast": "eager, 16-bit autocast",
    "compile-default": "torch.compile",
    "compile-max-autotune": "torch.compile, max-autotune",
}


def dropin_rows(shape: dict) -> dict:
    return {row["name"]: row for row in shape.get("rows", []) if "seconds" in row}


def dropin_cell(row: dict | None) -> str:
    return "–" if row is None else seconds_spread(row["seconds"]) + (" ✗" if row["worst"] > 1 else "")


def best_rival(rows: dict) -> dict | None:
    """The fastest of the others that keeps the contract."""
    rivals = [row for name, row in rows.items() if name != "gnomon" and row["worst"] <= 1 and "of_gnomon" in row]
    return min(rivals, key=lambda row: row["seconds"]["median"], default=None)


def ran_on(results: dict) -> dict:
    """What two runs must share for their figures to stand in one table."""
    facts = {key: results[key] for key in ("gnomon", "torch")}
    return {**facts, "device": results["protocol"]["device"], "cpu": results["machine"]["cpu"]}


def with_runs_of_their_own(results: dict, folder: Path) -> dict:
    """A shape that the run did not reach comes from dropin-shape-N.json, where it was run alone."""
    results = {**results, "shapes": list(results["shapes"]), "runs_of_their_own": []}
    for at, shape in enumerate(results["shapes"]):
        path = folder / f"dropin-shape-{shape['id']}.json"
        if "not_run" not in shape or not path.exists():
            continue
        alone = load(path)
        if [one["problem"] for one in alone["shapes"]] != [shape["problem"]]:
            raise TableError(f"{path}: expected the shape {shape['problem']} alone, got {[one['problem'] for one in alone['shapes']]}")
        ran, alone_ran = ran_on(results), ran_on(alone)
        if alone_ran != ran:
            raise TableError(f"{path}: expected a run beside dropin.json's, on {ran}; got one on {alone_ran}")
        results["shapes"][at] = alone["shapes"][0]
        results["runs_of_their_own"].append(f"#{shape['id']} (commit {alone['commit']}, {alone['seconds']:.0f} s)")
    return results


def dropin_table(folder: Path) -> str:
    """The PyTorch drop-in and PyTorch's own ways, from dropin.json (python -m gnomon.bench --json)."""
    results = with_runs_of_their_own(load(folder / "dropin.json"), folder)
    found = {row["name"] for shape in results["shapes"] for row in dropin_rows(shape).values()}
    others = [peer["name"] for peer in results["peers"] if peer["name"] in found - {"gnomon"}]
    if "gnomon" not in found or "reference" not in found:
        raise TableError(f"expected Gnomon and the reference measured on a shape in {folder / 'dropin.json'}, got {sorted(found)}")
    header = ["#", "problem", "Gnomon, ms", *[f"{DROPIN_TITLES.get(n, n)}, ms" for n in others], "eager / Gnomon"]
    header += ["best of the others / Gnomon", "worst error"]
    lines, ratios = [], {"reference": [], "best": []}
    for shape in results["shapes"]:
        start, rows = [str(shape["id"]), f"`{shape['problem']}`"], dropin_rows(shape)
        if "gnomon" not in rows:
            reason = shape.get("not_run") or next(text for text in map(why_not, shape["rows"]) if text)
            lines.append([*start, f"not run: {reason}", *[""] * (len(others) + 3)])
            continue
        rival, eager = best_rival(rows), rows.get("reference")
        for key, row in (("reference", eager), ("best", rival)):
            ratios[key] += [row["of_gnomon"]["median"]] if row else []
        cells = [times(row["of_gnomon"]["median"]) if row else "–" for row in (eager, rival)]
        cells[1] += f" ({DROPIN_TITLES.get(rival['name'], rival['name'])})" if rival else ""
        mark = " ✗" if rows["gnomon"]["worst"] > 1 else ""
        lines.append(
            [*start, dropin_cell(rows["gnomon"]), *[dropin_cell(rows.get(n)) for n in others], *cells]
            + [f"{rows['gnomon']['worst']:.3f}{mark}"]
        )
    means = [f"**{times(statistics.geometric_mean(found_))}**" for found_ in ratios.values()]
    lines.append(["", "geometric mean", *[""] * (len(others) + 1), *means, ""])
    return markdown(header, lines, right=2) + dropin_caption(results)


def why_not(row: dict) -> str | None:
    return f"{row['name']}: {row.get('failed') or row['refused']}" if row["name"] == "gnomon" and "seconds" not in row else None


def dropin_caption(results: dict) -> str:
    torch, machine, cost = results["torch"], results["machine"], results.get("overhead", {})
    where = processor(machine, "model") if results["protocol"]["device"] == "cpu" else results["device"]["name"]
    text = (
        f"\n{where}; Gnomon {results['gnomon']}; PyTorch {torch['version']} as it comes ({torch['blas']}; threads: "
        f"{torch['threads']}); commit {results['commit']}, {results['date'][:10]}, {results['seconds']:.0f} s. Medians (quartiles) of "
        "interleaved rounds, ratios round by round; ✗: breaks the contract; worst error: share of the contract's limit."
    )
    if results["runs_of_their_own"]:
        text += f" In a run of its own: {', '.join(results['runs_of_their_own'])}."
    if "python_us" in cost:
        text += (
            f" Python's part of a call at shape 1: {cost['python_us']['median']:.1f} µs, of which the test whether any of "
            f"{cost['parameters']} weights changed takes {cost['weights_test_us']['median']:.1f}."
        )
    if "overhead_us" in cost:
        text += (
            f" The whole call takes {cost['call_us']['median']:.1f} µs on the host, {cost['overhead_us']['median']:.1f} of them outside "
            "of the driver."
        )
    return text + "\n"


TABLES = {"peers": peers_table, "bench": bench_table, "explain": explain_table, "dropin": dropin_table}


def load(path: Path) -> dict:
    if not path.exists():
        raise TableError(f"no {path}: measure first (see bench/), or take the table's markers out of the README")
    return json.loads(path.read_text(encoding="utf-8"))


def render(readme: str, results: Path) -> str:
    """The README with every table made anew."""

    def fill(match: re.Match) -> str:
        if match["table"] not in TABLES:
            raise TableError(f"expected a table of {', '.join(TABLES)}, got '{match['table']}'")
        return match["begin"] + "\n" + TABLES[match["table"]](results / match["machine"]) + "\n" + match["end"]

    filled = BLOCK.sub(fill, readme)
    stray = MARKER.findall(BLOCK.sub("", readme))
    if stray:
        raise TableError(f"expected '<!-- begin: MACHINE/TABLE -->' and its end, got '{stray[0]}' alone")
    return filled


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a table is out of date")
    parser.add_argument("--readme", type=Path, default=ROOT / "README.md")
    parser.add_argument("--results", type=Path, default=ROOT / "bench" / "results")
    options = parser.parse_args(arguments)
    before = options.readme.read_text(encoding="utf-8")
    try:
        after = render(before, options.results)
    except TableError as error:
        print(f"{options.readme}: {error}", file=sys.stderr)
        return 1
    if options.check and before != after:
        sys.stderr.writelines(
            difflib.unified_diff(before.splitlines(True), after.splitlines(True), "README", "from bench/results")
        )
        print(f"{options.readme} is out of date: run tools/readme_tables.py", file=sys.stderr)
        return 1
    if not options.check:
        options.readme.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
