"""Measures Gnomon and its peers on one machine in one session, paired.

Every peer is a process of its own, loaded with the same weights and input. Rounds go A B C A B C ...: in its turn a
peer runs for a slot of time while the others sleep, and the median of its calls is its figure for the round. Ratios are
taken round by round; medians with their spread are reported. Peers that do not fit into memory together take turns with
the first peer in sessions of their own. Every peer's answer is checked against the PyTorch reference under the
contract, element by element.
"""

import argparse
import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import contract
import machine
import report
from peers import PeerSpec, all_peers, groups, memory_estimate, process_environment
from stack_config import SUITE, Shape, load_suite

HERE = Path(__file__).resolve().parent
SETTLE = 0.05  # seconds between turns: OpenMP's and ONNX Runtime's threads spin for some milliseconds before they sleep
MINIMUM_ROUNDS = 3
MEMORY_SHARE = 0.9


class PeerError(RuntimeError):
    pass


class Process:
    """A worker and the pipe to it."""

    def __init__(self, spec: PeerSpec, log: Path):
        self.spec = spec
        self.log = open(log, "w")
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "worker.py"), spec.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=process_environment(spec),
        )

    def ask(self, do: str, **arguments) -> dict:
        try:
            self.process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        line = self.process.stdout.readline()
        if not line:
            raise PeerError(f"the process ended with status {self.process.wait()}: {self.tail()}")
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def tail(self) -> str:
        return Path(self.log.name).read_text()[-500:].strip()

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()
        self.log.close()


class Session:
    """Some peers on one shape: the workers, and what they answered."""

    def __init__(self, shape: Shape, specs: list[PeerSpec], options: argparse.Namespace, folder: Path):
        self.shape, self.options, self.folder = shape, options, folder
        self.workers: dict[str, Process] = {}
        self.peers: dict[str, dict] = {}
        for spec in specs:
            self.start(spec)

    def start(self, spec: PeerSpec) -> None:
        self.peers[spec.name] = peer = {"title": spec.title, "environment": spec.environment}
        if spec.refusal:
            peer["skipped"] = spec.refusal
            return
        worker = Process(spec, self.folder / f"{spec.name}.log")
        try:
            peer["about"] = worker.ask("about", settings=self.settings(spec.name))
            peer.update(
                worker.ask(
                    "load",
                    shape=dataclasses.asdict(self.shape),
                    input=str(self.folder / "input.npy"),
                    weights=str(self.folder / "weights.safetensors"),
                )
            )
            self.workers[spec.name] = worker
        except PeerError as error:
            peer["failed"] = str(error)
            worker.close()

    def settings(self, name: str) -> dict:
        if name != "gnomon":
            return {"threads": self.options.threads}
        options = dict(option.split("=", 1) for option in self.options.gnomon_option)
        options.setdefault("plan_dir", str(self.folder / "plans"))
        options.setdefault("threads", str(self.options.threads))
        return {"options": options, "library": self.options.library}

    def round(self) -> None:
        for name, worker in list(self.workers.items()):
            time.sleep(SETTLE)
            try:
                result = worker.ask("measure", seconds=self.options.slot)
            except PeerError as error:
                self.peers[name]["failed"] = str(error)
                self.workers.pop(name).close()
                continue
            self.peers[name].setdefault("rounds_ms", []).append(1e3 * result["seconds"])
            self.peers[name].setdefault("calls", []).append(result["calls"])

    def measure(self, seconds: float) -> None:
        start = time.monotonic()
        longest = 0.0
        for done in range(self.options.rounds):
            elapsed = time.monotonic() - start
            if done >= min(MINIMUM_ROUNDS, self.options.rounds) and elapsed + longest > seconds:
                break
            self.round()
            longest = max(longest, time.monotonic() - start - elapsed)

    def expected_round(self) -> float:
        return sum(max(self.options.slot, self.peers[name]["first_call_seconds"]) for name in self.workers)

    def check(self, limits: dict) -> None:
        reference = np.load(self.folder / "reference.npy", mmap_mode="r")
        for name, worker in self.workers.items():
            path = self.folder / f"{name}.npy"
            try:
                self.peers[name] |= worker.ask("answer", path=str(path))
                verdict = contract.compare(np.load(path, mmap_mode="r"), reference, limits["abs"], limits["rel"])
                self.peers[name]["contract"] = dataclasses.asdict(verdict) | {"holds": verdict.holds}
            except PeerError as error:
                self.peers[name]["failed"] = str(error)
            path.unlink(missing_ok=True)

    def close(self) -> None:
        for worker in self.workers.values():
            worker.close()


def prepare(shape: Shape, options: argparse.Namespace, folder: Path) -> None:
    command = [
        sys.executable,
        str(HERE / "prepare.py"),
        json.dumps(dataclasses.asdict(shape)),
        str(folder),
        str(options.seed),
    ]
    subprocess.run(command, check=True, env=process_environment(all_peers(options.threads)["torch_tuned"]))


def measure_group(
    shape: Shape, names: list[str], options: argparse.Namespace, limits: dict, folder: Path, seconds: float
) -> dict:
    """The peers' entries after a session, summarised against the first of them."""
    start = time.monotonic()
    available = all_peers(options.threads)
    session = Session(shape, [available[name] for name in names], options, folder)
    try:
        left = seconds - (time.monotonic() - start)
        needed = MINIMUM_ROUNDS * session.expected_round()
        if needed > left:
            reason = f"time: {MINIMUM_ROUNDS} rounds need about {needed:.0f} s, {max(left, 0):.0f} s are left for it"
            return {
                name: peer if "failed" in peer else peer | {"skipped": reason} for name, peer in session.peers.items()
            }
        session.measure(left)
        session.check(limits)
    finally:
        session.close()
    return report.summarise(session.peers, names)


def measure_shape(shape: Shape, options: argparse.Namespace, limits: dict, seconds: float) -> dict:
    start = time.monotonic()
    sessions, refused = groups(options.peers, shape, int(MEMORY_SHARE * machine.memory("MemAvailable")))
    peers: dict[str, dict] = {}
    base = memory_estimate(options.peers[0], shape)
    result = {"id": shape.id, "problem": shape.problem}
    if len(refused) == len(options.peers) - 1 and base > machine.memory("MemAvailable"):
        return result | {"skipped": f"memory: input and output alone are {2 * shape.activation_bytes / 2**30:.1f} GiB"}
    folder = Path(tempfile.mkdtemp(prefix="gnomon-peers-"))
    try:
        prepare(shape, options, folder)
        for position, names in enumerate(sessions):
            share = (seconds - (time.monotonic() - start)) / (len(sessions) - position)
            entries = measure_group(shape, names, options, limits, folder, share)
            if position > 0:
                own = entries.pop(names[0])
                entries = {
                    name: entry | {"base_rounds_ms": own.get("rounds_ms", [])} for name, entry in entries.items()
                }
            peers |= entries
    finally:
        shutil.rmtree(folder)
    peers |= {name: {"skipped": reason} for name, reason in refused.items()}
    return result | {"peers": {name: peers[name] for name in options.peers}}


def run(options: argparse.Namespace) -> dict:
    limits, shapes = load_suite(options.suite)
    shapes = [shape for shape in shapes if shape.id in options.shapes]
    results = {
        "about": "Paired, interleaved measurement of Gnomon and its peers; bench/peers/compare.py wrote it.",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "commit": machine.commit(),
        "machine": machine.describe(),
        "contract": limits,
        "protocol": {
            "rounds": options.rounds,
            "slot_seconds": options.slot,
            "threads": options.threads,
            "seed": options.seed,
            "ratio": f"time of a peer / time of {options.peers[0]}, round by round",
        },
        "shapes": [],
    }
    deadline = time.monotonic() + options.budget
    # Cheap shapes first: what they leave of their share goes to the dear ones.
    order = sorted(shapes, key=lambda s: s.activation_bytes * (s.config.d_model + s.seq))
    for position, shape in enumerate(order):
        share = (deadline - time.monotonic()) / (len(order) - position)
        print(f"shape {shape.id}: {shape.problem}", file=sys.stderr, flush=True)
        results["shapes"].append(measure_shape(shape, options, limits, share))
        print(report.line(results["shapes"][-1], options.peers), file=sys.stderr, flush=True)
    results["shapes"].sort(key=lambda shape: shape["id"])
    results["geometric_means"] = report.geometric_means(results["shapes"], options.peers)
    return results


def ids(text: str) -> list[int]:
    """ "1-9,13" as numbers."""
    numbers: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), int(last or first) + 1)
    return numbers


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", type=ids, default=ids("1-9"), help="ids of the suite, as 1-9,11 (default 1-9)")
    parser.add_argument(
        "--peers",
        type=lambda text: text.split(","),
        default=["gnomon", "ort", "torch_tuned", "torch"],
        help="in the order of their turns; ratios are against the first (default gnomon,ort,torch_tuned,torch)",
    )
    parser.add_argument("--rounds", type=int, default=9, help="rounds of a shape (default 9)")
    parser.add_argument(
        "--slot", type=float, default=0.4, help="seconds of a peer's turn (default 0.4; at least one call)"
    )
    parser.add_argument("--budget", type=float, default=1500, help="seconds for everything (default 1500)")
    parser.add_argument(
        "--threads", type=int, default=machine.cores(), help="threads of every peer (default: cores)"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suite", type=Path, default=SUITE)
    parser.add_argument("--library", help="libgnomon.so (default build/release/libgnomon.so)")
    parser.add_argument(
        "--gnomon-option", action="append", default=[], metavar="NAME=VALUE", help="as gnomon_options_set takes it"
    )
    parser.add_argument(
        "--machine", default=machine.name(), help="folder of bench/results (default from the processor's name)"
    )
    parser.add_argument("--out", type=Path, help="the JSON (default bench/results/MACHINE/peers.json; '-' for none)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.peers if name not in all_peers(options.threads)]
    if unknown:
        parser.error(f"unknown peer '{unknown[0]}': expected {', '.join(all_peers(options.threads))}")
    return options


def main() -> int:
    options = parse()
    results = run(options)
    print(report.table(results, options.peers))
    if str(options.out) != "-":
        path = options.out or machine.ROOT / "bench" / "results" / options.machine / "peers.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1) + "\n")
        print(f"\nwritten: {path}")
    return 0 if report.all_right(results) else 1


if __name__ == "__main__":
    sys.exit(main())
