"""Timing one peer's turn.

A turn is as many calls as fit into its slot, after a short warm-up, because the caches hold what the peer before left. On
the CPU every call is timed by the wall clock and the median stands for the turn. On a CUDA device a turn gives three figures, kept apart:
  device   events around back-to-back calls: the device's time, or the host's where the host is the slower one
  wall     the same calls by the wall clock until the last has ended: with what the host adds at the end
  latency  single calls, each until it has ended: what one request waits for
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict

import torch

from .statistics import median

Run = Callable[[], Any]
WARM_UP_SHARE = 0.1
WARM_UP_LIMIT = 1.0  # seconds: a longer call leaves its own trace in the caches and needs no warm-up
LATENCY_CALLS = 10


def _warm_up(once: Callable[[Run], float], run: Run, slot: float, expected: float) -> float:
    """What a call takes: the last one's time, or what was expected where a call is too long to be made for that."""
    left, last = WARM_UP_SHARE * slot, expected
    while last < WARM_UP_LIMIT and left > 0:
        last = once(run)
        left -= last
    return last


class HostClock:
    """For the CPU. `now` is passed in so that tests can fake it."""

    figures = ("seconds",)

    def __init__(self, now: Callable[[], float] = time.perf_counter):
        self._now = now

    def once(self, run: Run) -> float:
        start = self._now()
        run()
        return self._now() - start

    def turn(self, run: Run, slot: float, expected: float) -> Dict[str, float]:
        _warm_up(self.once, run, slot, expected)
        times = [self.once(run)]
        total = times[0]
        while total + times[-1] <= slot:
            times.append(self.once(run))
            total += times[-1]
        return {"seconds": median(times), "calls": len(times)}


class CudaClock:
    figures = ("seconds", "wall_seconds", "latency_seconds")

    def __init__(self, device: torch.device):
        self._device = device

    def once(self, run: Run) -> float:
        torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        run()
        torch.cuda.synchronize(self._device)
        return time.perf_counter() - start

    def turn(self, run: Run, slot: float, expected: float) -> Dict[str, float]:
        last = _warm_up(self.once, run, slot, expected)
        latencies = [self.once(run) for _ in range(max(1, min(LATENCY_CALLS, int(0.3 * slot / max(last, 1e-9)))))]
        calls = max(1, int(0.6 * slot / max(median(latencies), 1e-9)))
        first, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self._device)
        start = time.perf_counter()
        first.record()
        for _ in range(calls):
            run()
        end.record()
        torch.cuda.synchronize(self._device)
        wall = time.perf_counter() - start
        return {
            "seconds": 1e-3 * first.elapsed_time(end) / calls,
            "wall_seconds": wall / calls,
            "latency_seconds": median(latencies),
            "calls": calls,
        }


def clock_for(device: torch.device) -> Any:
    return CudaClock(device) if device.type == "cuda" else HostClock()
