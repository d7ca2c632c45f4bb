"""Python's part of a call, in microseconds: the whole of module(x) with the library's function replaced by a C function
that does nothing, at the suite's shape 1 (48 parameters). Run it as a script; test_calls.py holds the bound."""

import ctypes
import statistics
import time

import torch

from gnomon._library import library
from gnomon._state import state_of

IDLE = ctypes.CDLL(None).memcmp  # its third argument is the mask's, None: nothing is compared, 0 is returned


def microseconds(function, count: int = 300, repeats: int = 15) -> float:
    """The lower quartile of the repeats' means: other processes only ever add."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            function()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.quantiles(times, n=4)[0]


def parts(module: torch.nn.Module, x: torch.Tensor) -> dict:
    """{"call": module(x) around an idle library, "watch": the test for changes alone, "torch": what PyTorch's own
    __call__ and the output's allocation take}. The module is optimized and has answered a call with x."""
    lib = library()
    real = lib.forward
    with torch.inference_mode():
        module(x)
        watch = state_of(module)._view.watch
        lib.forward = IDLE
        try:
            call = microseconds(lambda: module(x))
        finally:
            lib.forward = real
        return {
            "call": call,
            "watch": microseconds(lambda: watch.changed(module)),
            "torch": microseconds(lambda: torch.empty_like(x)) + microseconds(lambda: IDENTITY(x)),
        }


class _Identity(torch.nn.Module):
    def forward(self, x):
        return x


IDENTITY = _Identity()

if __name__ == "__main__":
    import sys
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "bench"))
    from reference import Reference
    from stack_config import StackConfig

    import gnomon

    module = gnomon.optimize(Reference(StackConfig()).eval(), budget=0.5, plan_dir=None)
    for name, value in parts(module, torch.randn(1, 100, 128)).items():
        print(f"{name:6s} {value:6.2f} us")
