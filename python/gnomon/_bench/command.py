"""The arguments, and the run over the shapes."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Dict, List, Optional

import torch

import gnomon

from . import device, overhead, page, peers, text
from .session import Experience, Session, flops, one_line
from .shared import SUITE, Shape, commit, load_suite
from .statistics import geometric_mean
from .work import DTYPES, CannotRun, Setting, too_large

DEFAULT_PEERS = {
    "cpu": "gnomon,reference-all-cores,by-hand,sdpa,encoder,compile-default,compile-max-autotune",
    "cuda": "gnomon,by-hand,sdpa,sdpa-half,encoder-half,compile-*-autocast,compile-*-half",
}
BUDGET = {"cpu": 480.0, "cuda": 1200.0}
SLOT = {"cpu": 0.1, "cuda": 0.05}
MINIMUM_SHARE = 2.0  # seconds: with less left, a shape is not begun
QUICK = {"budget": 45.0, "shapes": "1-4", "peers": "gnomon,reference-all-cores,by-hand,sdpa,encoder", "rounds": 5, "slot": 0.05}


def ids(text_: str) -> List[int]:
    """"1-6,8" as numbers. Raises ValueError for a part that names none."""
    numbers: List[int] = []
    for part in text_.split(","):
        first, _, last = part.partition("-")
        try:
            found = range(int(first), int(last or first) + 1)
        except ValueError:
            found = range(0)
        if not found:
            raise ValueError(f"--shapes {text_}: expected numbers and ranges as 1-6,8, got '{part}'")
        numbers += found
    return numbers


def parse(arguments: Optional[List[str]]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m gnomon.bench",
        description="Times the drop-in, the plain PyTorch module and its faster forms over the suite's shapes: interleaved in "
        "one process, ratios taken round by round, every answer judged element by element.",
        epilog="peers: " + ", ".join(peers.NAMES),
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", help="cpu, cuda, cuda:1 (default: %(default)s)")
    parser.add_argument("--shapes", help="ids of the suite, as 1-6,8 (default: all)")
    parser.add_argument("--peers", help="names or patterns, by commas (default by device); the reference is always one")
    parser.add_argument("--rounds", type=int, help="rounds of a shape at most (default 15)")
    parser.add_argument("--slot", type=float, help="seconds of a peer's turn; one call at least (default 0.1, CUDA 0.05)")
    parser.add_argument("--budget", type=float, metavar="SECONDS", help="for everything; cheap shapes come first, and those not "
                        "reached are listed (default 480, CUDA 1200)")  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="shapes 1-4 and few peers in under a minute")
    parser.add_argument("--dtype", choices=DTYPES, default="f32", help="of the module, its input and output (default f32)")
    parser.add_argument("--mask", choices=("none", "all"), default="none", help="all: a padding mask that hides nothing is given")
    parser.add_argument("--plan-dir", type=Path, help="Gnomon's plan store (default: the user's)")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of gnomon.optimize()")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suite", type=Path, default=SUITE, help="another file of shapes")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("--html", type=Path, metavar="FILE", help="a page with charts that needs nothing else")
    options = parser.parse_args(arguments)
    options.arguments = sys.argv[1:] if arguments is None else list(arguments)
    kind = options.device.partition(":")[0]
    if kind not in BUDGET:
        parser.error(f"--device {options.device}: expected cpu, cuda or cuda:N")
    if kind == "cuda" and not torch.cuda.is_available():
        parser.error(f"--device {options.device}: this PyTorch ({torch.__version__}) finds no CUDA device")
    defaults = {"budget": BUDGET[kind], "shapes": None, "peers": DEFAULT_PEERS[kind], "rounds": 15, "slot": SLOT[kind]}
    for name, value in {**defaults, **(QUICK if options.quick else {})}.items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    try:
        options.peers = peers.chosen(options.peers.split(","))
        options.shapes = ids(options.shapes) if options.shapes else None
    except ValueError as error:
        parser.error(str(error))
    for name, least in (("rounds", 1), ("slot", 0.0), ("budget", 0.0)):
        if getattr(options, name) < least:
            parser.error(f"--{name} {getattr(options, name)}: expected at least {least:g}")
    if any("=" not in option for option in options.option):
        parser.error(f"--option {' '.join(options.option)}: expected NAME=VALUE")
    return options


def setting_of(options: argparse.Namespace, limits: Dict[str, float]) -> Setting:
    chosen = dict(option.split("=", 1) for option in options.option)
    if options.plan_dir is not None:
        chosen.setdefault("plan_dir", str(options.plan_dir))
    kept = {name: limits[name] for name in ("abs", "rel")}
    place = torch.device(options.device)
    if place.type == "cuda":
        place = torch.device("cuda", place.index or 0)
        torch.cuda.set_device(place)
    return Setting(place, DTYPES[options.dtype], options.mask, options.seed, kept, chosen)


def means(shapes: List[Dict[str, Any]]) -> Dict[str, Any]:
    """Of the speed-ups over the reference, with the shapes that went into each."""
    found: Dict[str, Dict[int, float]] = {}
    for shape in shapes:
        for row in shape.get("rows", []):
            if "speedup" in row:
                found.setdefault(row["name"], {})[shape["id"]] = row["speedup"]["median"]
    return {n: {"speedup": geometric_mean(list(v.values())), "shapes": list(v)} for n, v in found.items()}


def over_shapes(options: argparse.Namespace, setting: Setting, shapes: List[Shape], results: Dict[str, Any]) -> None:
    deadline = time.monotonic() + options.budget
    experience = Experience()
    order = sorted(shapes, key=flops)
    for position, shape in enumerate(order):
        share = (deadline - time.monotonic()) / (len(order) - position)
        entry: Dict[str, Any] = {"id": shape.id, "problem": shape.problem}
        needed = experience.expected("reference", shape, 5)
        large = too_large(shape, setting)
        if large is not None:
            entry["not_run"] = large
        elif share < MINIMUM_SHARE or (needed is not None and needed > deadline - time.monotonic()):
            left = max(deadline - time.monotonic(), 0)
            entry["not_run"] = f"budget: {left:.0f} of {options.budget:.0f} s are left"
            entry["not_run"] += f", the reference alone takes about {needed:.0f} s" if needed else ""
        else:
            if hasattr(torch, "_dynamo"):
                torch._dynamo.reset()  # else a new shape would be compiled as one of varying sizes
            session = Session(shape, setting, options.peers, options.rounds, options.slot, experience)
            try:
                entry = session.run(share)
            except Exception as error:  # a shape that went wrong is a row that says so
                entry["not_run"] = one_line(error)
                results["went_wrong"] = True
        results["shapes"].append(entry)
        text.print_shape(entry, results)


def run(options: argparse.Namespace) -> Dict[str, Any]:
    start = time.monotonic()
    limits, shapes = load_suite(options.suite)
    if options.shapes is not None:
        unknown = set(options.shapes) - {shape.id for shape in shapes}
        if unknown:
            print(f"--shapes {sorted(unknown)}: the suite has {[shape.id for shape in shapes]}", file=sys.stderr)
            raise SystemExit(2)
    chosen = [shape for shape in shapes if options.shapes is None or shape.id in options.shapes]
    setting = setting_of(options, limits)
    results: Dict[str, Any] = {
        "about": "The PyTorch drop-in against PyTorch, interleaved and judged; python -m gnomon.bench wrote it.",
        "gnomon": gnomon.__version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": commit(),
        "arguments": options.arguments,
        **device.describe(setting),
        "contract": setting.limits,
        "protocol": device.protocol(setting, options),
        "peers": [{"name": p.name, "title": p.title} for p in options.peers],
        "shapes": [],
    }
    print(text.head(results), flush=True)
    try:
        over_shapes(options, setting, chosen, results)
        results["overhead"] = overhead_of(min(shapes, key=flops), setting)
    except KeyboardInterrupt:
        results["interrupted"] = True
    results["shapes"].sort(key=lambda shape: shape["id"])
    results["geometric_means"] = means(results["shapes"])
    results["seconds"] = time.monotonic() - start
    return results


def overhead_of(shape: Shape, setting: Setting) -> Dict[str, Any]:
    try:
        return overhead.measure(shape, setting)
    except Exception as error:
        return {"not_run": str(error) if isinstance(error, CannotRun) else one_line(error)}


def holds(results: Dict[str, Any]) -> bool:
    """Gnomon answered every shape that was run, inside the contract, and no shape went wrong as a whole. What the others did is
    theirs."""
    rows = [r for shape in results["shapes"] if "not_run" not in shape for r in shape["rows"] if r["name"] == "gnomon"]
    return "went_wrong" not in results and all("worst" in row and row["worst"] <= 1.0 for row in rows)


def main(arguments: Optional[List[str]] = None) -> int:
    """0: done; 1: Gnomon failed, fell back, or left the contract somewhere, or a shape went wrong; 2: wrong arguments."""
    options = parse(arguments)
    results = run(options)
    print(text.foot(results), flush=True)
    for path, content in ((options.json, lambda: json.dumps(results, indent=1) + "\n"), (options.html, lambda: page.render(results))):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content(), encoding="utf-8")
            print(f"written: {os.fspath(path)}")
    return 0 if holds(results) else 1
