"""One shape from its input to its figures: peers prepared and judged, timed in interleaved rounds, judged again."""

from __future__ import annotations

import dataclasses
import gc
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional

import torch

from .clock import clock_for
from .contract import Verdict
from .peers import Peer, Ready
from .shared import Shape
from .statistics import paired, spread
from .work import GIB, MEMORY_SHARE, CannotRun, Setting, Work, available_memory

MINIMUM_ROUNDS = 3
INDISPENSABLE = ("reference", "gnomon")  # what the bench is about
PREPARING_SHARE = 0.8  # of a shape's time
PLANNING_SHARE = 0.3  # of a shape's time, where no budget is among the options
# Between turns, so that the threads of the one before have stopped spinning (OpenMP's for some milliseconds, Gnomon's for 50 us).
SETTLE = 0.05


@dataclass
class Experience:
    """What earlier shapes told about a peer's cost, by arithmetic operation: a guess of what the next one needs."""

    call: Dict[str, float] = field(default_factory=dict)
    prepare: Dict[str, float] = field(default_factory=dict)

    def expected(self, name: str, shape: Shape, turns: float) -> Optional[float]:
        """Seconds for preparing and `turns` calls; None when the peer was not met yet."""
        if name not in self.call:
            return None
        return self.prepare[name] + turns * self.call[name] * flops(shape)

    def learn(self, name: str, shape: Shape, call: float, prepare: float) -> None:
        self.call[name] = call / flops(shape)
        self.prepare[name] = max(0.0, prepare - 2 * call)


def flops(shape: Shape) -> float:
    """Of a pass; the causal half counts once."""
    c = shape.config
    products = 2 * (4 * c.d_model * c.d_model + 2 * c.d_model * c.d_ff)
    scores = 4 * c.d_model * shape.seq * (0.5 if c.causal else 1.0)
    return float(shape.batch * shape.seq * c.layers * (products + scores))


def one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


class Session:
    def __init__(self, shape: Shape, setting: Setting, peers: List[Peer], rounds: int, slot: float, experience: Experience):
        self.shape, self.setting, self.peers = shape, setting, peers
        self.rounds, self.slot, self.experience = rounds, slot, experience
        self.clock = clock_for(setting.device)
        self.ready: Dict[str, Ready] = {}
        self.last: Dict[str, float] = {}
        self.verdicts: Dict[str, Verdict] = {}
        self.turns: Dict[str, List[Dict[str, float]]] = {}
        self.entries: Dict[str, Dict[str, Any]] = {p.name: {"name": p.name, "title": p.title} for p in peers}

    def run(self, seconds: float) -> Dict[str, Any]:
        """The shape's part of the results. Takes about `seconds`; three rounds are taken whatever they cost."""
        start = time.monotonic()
        planning = {"budget": max(1.0, PLANNING_SHARE * seconds), **self.setting.gnomon_options}
        self.setting = dataclasses.replace(self.setting, gnomon_options=planning)
        result: Dict[str, Any] = {"id": self.shape.id, "problem": self.shape.problem, "rows": list(self.entries.values())}
        try:
            self.work = Work(self.shape, self.setting)
        except CannotRun as reason:
            result["not_run"] = str(reason)
            return result
        result["judged_rows"] = self.work.judged_rows
        for peer in self.peers:  # in their order, as long as there is time: compiling is dear, and stands last
            self.prepare(peer, PREPARING_SHARE * seconds - (time.monotonic() - start))
        self.measure(seconds - (time.monotonic() - start))
        self.judge_again()
        self.summarise()
        result["rounds"] = max(map(len, self.turns.values()), default=0)
        return result

    def refusal(self, peer: Peer, seconds: float) -> Optional[str]:
        why = peer.refuse(self.setting)
        if why is not None:
            return why
        need, free = peer.bytes(self.shape, self.setting), available_memory(self.setting.device)
        if need > MEMORY_SHARE * free:
            return f"memory: it needs about {need / GIB:.1f} GiB, {free / GIB:.1f} GiB are free"
        if peer.name in INDISPENSABLE:
            return None
        if seconds <= 0:
            return "time: those before it took the shape's share of the budget"
        expected = self.experience.expected(peer.name, self.shape, 2 + 2 * MINIMUM_ROUNDS)
        if expected is not None and expected > seconds:
            return f"time: preparing and {MINIMUM_ROUNDS} rounds take about {expected:.0f} s, {seconds:.0f} s of the shape's share are left"
        return None

    def prepare(self, peer: Peer, seconds: float) -> None:
        entry = self.entries[peer.name]
        why = self.refusal(peer, seconds)
        if why is not None:
            entry["refused"] = why
            return
        start = time.monotonic()
        try:
            ready = peer.build(self.work)
            with ready.around():
                self.clock.once(ready.run)
                if ready.after is not None:
                    ready.after()
                self.last[peer.name] = self.clock.once(ready.run)
                self.verdicts[peer.name] = self.work.judge(ready.run())
        except CannotRun as reason:
            entry["refused"] = str(reason)
        except Exception as error:  # whatever a peer of another maker does, the others go on, and its row says it
            entry["failed"] = one_line(error)
        else:
            entry["prepare_seconds"] = time.monotonic() - start
            entry["notes"], entry["record"] = ready.notes, ready.record
            self.ready[peer.name] = ready
            self.turns[peer.name] = []
            self.experience.learn(peer.name, self.shape, self.last[peer.name], entry["prepare_seconds"])
        self.tidy()

    def tidy(self) -> None:
        gc.collect()
        if self.setting.cuda:
            torch.cuda.empty_cache()

    def round(self, number: int) -> None:
        names = list(self.ready)
        shift = number % len(names)  # nobody always follows the same one
        for name in names[shift:] + names[:shift]:
            time.sleep(SETTLE)
            try:
                with self.ready[name].around():
                    turn = self.clock.turn(self.ready[name].run, self.slot, self.last[name])
            except Exception as error:
                self.entries[name]["failed"] = one_line(error)
                del self.ready[name]
                continue
            self.last[name] = turn["seconds"]
            self.turns[name].append(turn)

    def measure(self, seconds: float) -> None:
        start, longest = time.monotonic(), 0.0
        for done in range(self.rounds):
            elapsed = time.monotonic() - start
            if not self.ready or (done >= MINIMUM_ROUNDS and elapsed + longest > seconds):
                return
            self.round(done)
            longest = max(longest, time.monotonic() - start - elapsed)

    def judge_again(self) -> None:
        """What was timed must still be right: answers that a buffer of another peer got into, or that went stale, show here."""
        for name, ready in list(self.ready.items()):
            try:
                with ready.around():
                    self.verdicts[name] = self.verdicts[name].joined(self.work.judge(ready.run()))
                if ready.after is not None:
                    ready.after()
                    self.entries[name]["record"] = ready.record
            except Exception as error:
                self.entries[name]["failed"] = one_line(error)
                del self.ready[name]

    def summarise(self) -> None:
        for name in self.ready:
            entry, turns = self.entries[name], self.turns[name]
            for figure in self.clock.figures:
                entry[figure] = spread([turn[figure] for turn in turns])
            entry["calls"] = [turn["calls"] for turn in turns]
            verdict = self.verdicts[name]
            entry.update(worst=verdict.worst, out_of_contract=verdict.out_of_contract, elements=verdict.elements)
            for base, key in (("reference", "speedup"), ("gnomon", "of_gnomon")):
                if base in self.ready and base != name:
                    entry[key] = self.ratio(base, name, key == "speedup")

    def ratio(self, base: str, name: str, base_over_name: bool) -> Dict[str, float]:
        """`speedup`: the reference's time over the peer's. `of_gnomon`: the peer's time over Gnomon's."""
        times, others = ([turn["seconds"] for turn in self.turns[n]] for n in (base, name))
        return spread(paired(times, others) if base_over_name else paired(others, times))
