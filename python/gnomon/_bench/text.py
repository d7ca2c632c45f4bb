"""The results as text."""

from __future__ import annotations

from typing import Any, Dict, List

WIDTHS = (33, 26, 20, 20, 9, 12)


def duration(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{1e6 * seconds:.4g} us"
    return f"{1e3 * seconds:.4g} ms" if seconds < 1.0 else f"{seconds:.4g} s"


def spread(value: Dict[str, float], show: Any) -> str:
    return f"{show(value['median'])} ({show(value['low'])}-{show(value['high'])})"


def times(ratio: float) -> str:
    return f"{ratio:.2f}x"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def why_not(row: Dict[str, Any]) -> str:
    return f"failed: {row['failed']}" if "failed" in row else row.get("refused", "")


def same_everywhere(results: Dict[str, Any]) -> Dict[str, str]:
    """Peers that ran on no shape for one reason: said once."""
    reasons: Dict[str, List[str]] = {}
    for shape in results["shapes"]:
        for row in shape.get("rows", []):
            reasons.setdefault(row["name"], []).append(why_not(row))
    return {name: found[0] for name, found in reasons.items() if len(found) > 1 and len(set(found)) == 1 and found[0]}


def line(*cells: str) -> str:
    return "  " + " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def head(results: Dict[str, Any]) -> str:
    machine, torch_, protocol = results["machine"], results["torch"], results["protocol"]
    device = results["device"]
    where = device["name"]
    if "driver" in device:
        where += f", driver {device['driver']}, CUDA {device['cuda']}"
    return "\n".join(
        [
            f"Gnomon {results['gnomon']} (commit {results['commit']}) against PyTorch {torch_['version']} on {where}",
            f"{machine['cores']} cores, PyTorch as it comes with {count(torch_['threads'], 'thread')} and {torch_['blas']}; {protocol['dtype']}; "
            f"times are {protocol['seconds']}",
            "medians (quartiles) over rounds; 'vs reference' is reference time / own time, round by round; worst error in units",
            f"of the contract's limit ({results['contract']['abs']} or {results['contract']['rel']} relative), and elements out of it",
        ]
    )


def row_line(row: Dict[str, Any]) -> str:
    if "seconds" not in row:
        return f"  {row['name'].ljust(WIDTHS[0])} - {why_not(row)}"
    wall = spread(row["wall_seconds"], duration) if "wall_seconds" in row else ""
    ratio = spread(row["speedup"], times) if "speedup" in row else ""
    out = str(row["out_of_contract"]) + (" OUT" if row["worst"] > 1 else "")
    return line(row["name"], spread(row["seconds"], duration), wall, ratio, f"{row['worst']:.3g}", out)


def print_shape(shape: Dict[str, Any], results: Dict[str, Any]) -> None:
    lines = ["", f"shape {shape['id']}: {shape['problem']}"]
    if "not_run" in shape:
        lines.append(f"  not run: {shape['not_run']}")
    else:
        second = "wall clock" if "driver" in results["device"] else ""
        lines.append(line("who", "time", second, "vs reference", "worst", "out"))
        lines += [row_line(row) for row in shape["rows"]]
    print("\n".join(lines), flush=True)


def overhead_line(found: Dict[str, Any]) -> str:
    if "not_run" in found:
        return f"drop-in overhead not measured: {found['not_run']}"

    def us(name: str) -> str:
        return spread(found[name], lambda value: f"{value:.1f}")

    without_driver = f"; without the driver {us('overhead_us')}" if "overhead_us" in found else ""
    return (
        f"drop-in at {found['problem']}, {found['parameters']} parameters, in us: Python's part of a call {us('python_us')}, of it the "
        f"test of the weights {us('weights_test_us')}; whole call {us('call_us')}, C call alone {us('c_call_us')}{without_driver}"
    )


def foot(results: Dict[str, Any]) -> str:
    lines = ["", "geometric mean of 'vs reference':"]
    for name, mean in sorted(results["geometric_means"].items(), key=lambda item: -item[1]["speedup"]):
        shapes = ", ".join(map(str, mean["shapes"]))
        lines.append(f"  {name.ljust(WIDTHS[0])} {times(mean['speedup'])}  (shapes {shapes})")
    for name, reason in same_everywhere(results).items():
        lines.append(f"  {name.ljust(WIDTHS[0])} on no shape: {reason}")
    if "overhead" in results:
        lines.append(overhead_line(results["overhead"]))
    lines.append(f"{results['seconds']:.0f} s" + (", interrupted" if results.get("interrupted") else ""))
    return "\n".join(lines)
