"""Statistics over rounds, and the table."""

import math
from statistics import median


def spread(values: list[float]) -> dict:
    ordered = sorted(values)
    return {"median": median(ordered), "low": ordered[0], "high": ordered[-1]}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


def measured(peer: dict) -> bool:
    """It ran through all its rounds."""
    return "rounds_ms" in peer and "failed" not in peer


def summarise(peers: dict, names: list[str]) -> dict:
    """Adds to each measured peer of a session its median with spread, and its paired ratio to the first."""
    base = peers[names[0]]
    for name in names:
        peer = peers[name]
        if not measured(peer):
            continue
        peer["ms"] = spread(peer["rounds_ms"])
        if measured(base) and name != names[0]:
            peer["ratio"] = spread(
                [other / own for other, own in zip(peer["rounds_ms"], base["rounds_ms"], strict=True)]
            )
    return peers


def geometric_means(shapes: list[dict], names: list[str]) -> dict:
    means = {}
    for name in names[1:]:
        rows = [
            (shape["id"], peer["ratio"]["median"])
            for shape in shapes
            if "ratio" in (peer := shape.get("peers", {}).get(name, {}))
        ]
        if rows:
            ratios = [ratio for _, ratio in rows]
            means[name] = {
                "ratio": geometric_mean(ratios),
                "lowest": min(ratios),
                "highest": max(ratios),
                "shapes": [shape_id for shape_id, _ in rows],
            }
    return means


def figure(shape: dict, name: str) -> str:
    peer = shape.get("peers", {}).get(name, {})
    if "failed" in peer or "skipped" in peer:
        return "failed" if "failed" in peer else "skipped"
    if "ms" not in peer:
        return "-"
    ms = peer["ms"]
    mark = "" if peer.get("contract", {}).get("holds", False) else "!"
    return f"{ms['median']:.4g} [{ms['low']:.4g}-{ms['high']:.4g}]{mark}"


def ratio(shape: dict, name: str) -> str:
    value = shape.get("peers", {}).get(name, {}).get("ratio")
    return f"{value['median']:.2f} [{value['low']:.2f}-{value['high']:.2f}]" if value else "-"


def reasons(shape: dict) -> list[str]:
    """Why figures are missing or not to be trusted."""
    notes = [f"shape {shape['id']}: {shape['skipped']}"] if "skipped" in shape else []
    for name, peer in shape.get("peers", {}).items():
        for kind in ("skipped", "failed"):
            if kind in peer:
                notes.append(f"shape {shape['id']}, {name} {kind}: {peer[kind]}")
        if not peer.get("contract", {}).get("holds", True):
            notes.append(
                f"shape {shape['id']}, {name} breaks the contract: worst {peer['contract']['worst']:.3g} of the limit"
            )
    return notes


def line(shape: dict, names: list[str]) -> str:
    if "skipped" in shape:
        return f"  skipped: {shape['skipped']}"
    return "  " + "  ".join(f"{name} {figure(shape, name)}" for name in names)


def all_right(results: dict) -> bool:
    return not any(
        "failed" in peer or not peer.get("contract", {}).get("holds", True)
        for shape in results["shapes"]
        for peer in shape.get("peers", {}).values()
    )


def table(results: dict, names: list[str]) -> str:
    header = ["id", "problem", *[f"{name} ms" for name in names], *[f"{name} / {names[0]}" for name in names[1:]]]
    rows = [
        [
            str(shape["id"]),
            shape["problem"],
            *[figure(shape, name) for name in names],
            *[ratio(shape, name) for name in names[1:]],
        ]
        for shape in results["shapes"]
    ]
    means = results["geometric_means"]
    rows.append(
        [
            "",
            "geometric mean",
            *[""] * len(names),
            *[f"{means[name]['ratio']:.2f}" if name in means else "-" for name in names[1:]],
        ]
    )
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    notes = [note for shape in results["shapes"] for note in reasons(shape)]
    return "\n".join(["Medians of rounds [lowest-highest]; '!' marks an answer out of contract.", *lines, *notes])
