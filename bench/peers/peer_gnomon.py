"""Gnomon through its C interface."""

import time
from pathlib import Path

import numpy as np

import gnomon_ctypes

KEPT = ("problem", "winner", "effort", "seconds", "plain_seconds", "worst", "bound", "notes")  # of the plan's record


class Peer:
    def __init__(self, settings: dict):
        self.library = gnomon_ctypes.Library(settings.get("library"))
        self.options = settings.get("options", {})

    def about(self) -> dict:
        return {"version": self.library.version(), "library": self.library.path.name, "options": self.options}

    def load(self, shape, weights: Path, x: np.ndarray, out: np.ndarray) -> dict:
        stack = gnomon_ctypes.Weights.from_safetensors(self.library, weights, shape.config.grammar())
        self.engine = gnomon_ctypes.Engine(self.library, stack, **self.options)
        start = time.perf_counter()
        self.engine.plan(x, out=out)
        planning = time.perf_counter() - start
        self.run = self.engine.bind("gnomon_forward", x, out)
        record = self.engine.explain(f"b{shape.batch} s{shape.seq}")
        return {"planning_seconds": planning, "plan": {key: record[key] for key in KEPT if key in record}}

    def details(self) -> dict:
        return {"stats": self.engine.stats()}
