"""The results as one HTML page that needs nothing else: charts, tables, and how it was measured."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any, Dict, List

from .charts import Bar, bars
from .text import count, duration, overhead_line, spread, times, why_not

_STYLE = Path(__file__).with_name("page.css")


def _escape(value: Any) -> str:
    return html.escape(str(value))


def kind(row: Dict[str, Any]) -> str:
    if row.get("worst", 0.0) > 1.0:
        return "broken"
    return {"gnomon": "ours", "reference": "reference"}.get(row["name"], "other")


def time_chart(shape: Dict[str, Any]) -> str:
    measured = [row for row in shape["rows"] if "seconds" in row]
    rows = []
    for row in sorted(measured, key=lambda row: row["seconds"]["median"]):
        value, ratio = row["seconds"], f"  {times(row['speedup']['median'])}" if "speedup" in row else ""
        rows.append(
            Bar(
                row["name"],
                value["median"],
                duration(value["median"]) + ratio,
                kind(row),
                value["low"],
                value["high"],
                f"{row['title']}: {spread(value, duration)}",
            )
        )
    return bars(f"Time of shape {shape['id']} by who", rows)


def mean_chart(results: Dict[str, Any]) -> str:
    titles = {peer["name"]: peer["title"] for peer in results["peers"]}
    broken = {row["name"] for shape in results["shapes"] for row in shape.get("rows", []) if row.get("worst", 0.0) > 1.0}
    rows = [
        Bar(
            name,
            mean["speedup"],
            f"{times(mean['speedup'])}, {len(mean['shapes'])} shape{'s' if len(mean['shapes']) > 1 else ''}",
            kind({"name": name, "worst": 2.0 if name in broken else 0.0}),
            hint=f"{titles.get(name, name)}: shapes {', '.join(map(str, mean['shapes']))}",
        )
        for name, mean in sorted(results["geometric_means"].items(), key=lambda item: -item[1]["speedup"])
    ]
    return bars("Geometric mean of speed-ups over the reference", rows, baseline=(1.0, "the reference"))


def table(shape: Dict[str, Any], cuda: bool) -> str:
    heads = ["who", "time (quartiles)", *(["wall clock", "one call"] if cuda else []), "vs reference", "vs Gnomon", "worst error", "elements out"]
    lines = [_row(row, cuda) for row in shape["rows"]]
    return (
        '<div class="scroll"><table><tr>' + "".join(f"<th>{h}</th>" for h in heads) + "</tr>" + "".join(lines) + "</table></div>"
    )


def _row(row: Dict[str, Any], cuda: bool) -> str:
    name = f'<td title="{_escape(row["title"])}">{_escape(row["name"])}</td>'
    if "seconds" not in row:
        return f'<tr>{name}<td class="why" colspan="{7 if cuda else 5}">{_escape(why_not(row))}</td></tr>'
    broken = ' class="out"' if row["worst"] > 1.0 else ""
    cells = [spread(row["seconds"], duration)]
    cells += [spread(row[figure], duration) for figure in ("wall_seconds", "latency_seconds")] if cuda else []
    cells += [spread(row[key], times) if key in row else "" for key in ("speedup", "of_gnomon")]
    judged = f"<td{broken}>{row['worst']:.3g}</td><td{broken} title=\"of {row['elements']:,}\">{row['out_of_contract']:,}</td>"
    return f'<tr class="{_escape(row["name"])}">{name}' + "".join(f"<td>{_escape(c)}</td>" for c in cells) + judged + "</tr>"


def notes(shape: Dict[str, Any]) -> str:
    items = [
        f"<li><b>{_escape(row['name'])}</b> ({_escape(row['title'])}): {_escape('; '.join(row['notes']))}</li>"
        for row in shape["rows"]
        if row.get("notes")
    ]
    return f"<details><summary>how each did it</summary><ul>{''.join(items)}</ul></details>" if items else ""


def section(shape: Dict[str, Any], cuda: bool) -> str:
    title = f"<h2>Shape {shape['id']}</h2><p><code>{_escape(shape['problem'])}</code>"
    if "not_run" in shape:
        return f"{title}</p><p>Not run: {_escape(shape['not_run'])}</p>"
    rounds = f" · {shape['rounds']} rounds"
    return title + rounds + "</p>" + time_chart(shape) + table(shape, cuda) + notes(shape)


def where(results: Dict[str, Any]) -> str:
    device, machine, torch = results["device"], results["machine"], results["torch"]
    facts = [
        f"<b>{_escape(device['name'])}</b>",
        *([f"driver {_escape(device['driver'])}, CUDA {_escape(device['cuda'])}"] if "driver" in device else []),
        f"{machine['cores']} cores",
        f"PyTorch {_escape(torch['version'])} as it comes: {count(torch['threads'], 'thread')}, {_escape(torch['blas'])}",
        f"Gnomon {_escape(results['gnomon'])}, commit {_escape(results['commit'])}",
        _escape(results["date"][:10]),
    ]
    return "<p>" + " · ".join(facts) + "</p>"


def render(results: Dict[str, Any]) -> str:
    protocol, limits = results["protocol"], results["contract"]
    cuda = "driver" in results["device"]
    parts: List[str] = [
        "<h1>Gnomon against PyTorch</h1>",
        where(results),
        f"<p>Times are {_escape(protocol['seconds'])}; {_escape(protocol['figures'])}. Ratios are the reference's time over the row's. "
        f"An element is right when it is within {limits['abs']} or {100 * limits['rel']:g} % of the fp32 reference; the worst error is in "
        "units of that limit. Bars show medians, whiskers quartiles.</p>",
        '<p class="key"><i style="background:var(--ours)"></i>Gnomon<i style="background:var(--reference)"></i>the PyTorch reference'
        '<i style="background:var(--other)"></i>other<i style="background:var(--broken)"></i>breaks the contract</p>',
        "<h2>Geometric mean of speed-ups over the reference</h2>",
        mean_chart(results),
        "<p>Each over the shapes it ran on: compare those of equal shapes. The contract counts as broken when one shape breaks it.</p>",
        *[section(shape, cuda) for shape in results["shapes"]],
    ]
    if "overhead" in results:
        parts.append(f"<h2>The drop-in's own cost</h2><p>{_escape(overhead_line(results['overhead']))}</p>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>Gnomon against PyTorch</title><style>{_STYLE.read_text()}</style></head><body>" + "\n".join(parts) + "</body></html>\n"
    )
