"""One peer in a process of its own, driven by compare.py: JSON requests on stdin, JSON answers on stdout, one a line.

Between requests the process sleeps in read(), so that none of its threads takes a core from the peer being measured.
"""

import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import machine
from stack_config import Shape, StackConfig

MODULES = {"gnomon": "peer_gnomon", "ort": "peer_ort", "torch_tuned": "peer_torch", "torch": "peer_torch"}
WARM_UP_LIMIT = 1.0  # seconds: a call longer than this leaves its own trace in the caches and needs no warm-up


class Worker:
    def __init__(self, name: str):
        self.module = importlib.import_module(MODULES[name])
        self.last = None

    def about(self, settings: dict) -> dict:
        self.peer = self.module.Peer(settings)
        return self.peer.about()

    def load(self, shape: dict, weights: str, input: str) -> dict:
        self.shape = Shape(shape["id"], shape["batch"], shape["seq"], StackConfig(**shape["config"]))
        self.x = np.load(input)
        self.out = np.full(self.x.shape, np.nan, np.float32)
        result = self.peer.load(self.shape, Path(weights), self.x, self.out)
        return result | {"first_call_seconds": self.timed()}

    def timed(self) -> float:
        start = time.perf_counter()
        self.peer.run()
        self.last = time.perf_counter() - start
        return self.last

    def measure(self, seconds: float) -> dict:
        """The times of as many calls as fit, at least one; the caches hold another peer's data before the first."""
        warm_up = 0.1 * seconds
        while self.last < WARM_UP_LIMIT and warm_up > 0:
            warm_up -= self.timed()
        times = [self.timed()]
        while sum(times) + self.last <= seconds:
            times.append(self.timed())
        return {"seconds": float(np.median(times)), "calls": len(times)}

    def answer(self, path: str) -> dict:
        """A last call into a poisoned output, so that an element left unwritten shows."""
        self.out.fill(np.nan)
        self.peer.run()
        if hasattr(self.peer, "publish"):
            self.peer.publish()
        np.save(path, self.out)
        return {"peak_memory_bytes": machine.peak_memory()} | (
            self.peer.details() if hasattr(self.peer, "details") else {}
        )


def serve(name: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints must not come between the answers
    worker = Worker(name)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = getattr(worker, request.pop("do"))(**request)
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    serve(sys.argv[1])
