"""What the drop-in adds to a call in Python, and what its test of the weights costs, at the suite's smallest shape.

`python_us` is the whole call with the C function replaced by one that returns at once, so that only Python is left, warm in the caches;
what PyTorch's own module call and the allocation of the output cost is in it. `difference_us` is the same seen from outside: whole
calls minus bare C calls, pair by pair, with the noise of both, and with the cache misses of Python's data after a pass and of the
pass's after Python. On a device, `call_us` is a whole call's time on the host, with what the driver takes, and `overhead_us` the same
while the driver returns at once: Python's part and the library's own (for C++ alone, `gnomon bench` calls the two `host_call_seconds`
and `overhead_seconds`). Times are medians with quartiles, in microseconds.
"""

from __future__ import annotations

import ctypes
import time
from typing import Any, Callable, Dict, List, Optional

import torch

import gnomon
from gnomon._device import current_stream
from gnomon._engine import _tensor
from gnomon._state import state_of

from .shared import Shape
from .statistics import spread
from .work import CannotRun, Setting, Work

REPEATS = 30
CALLS = 20  # in one sample: the clock's own cost must not show
SAMPLE_SECONDS = 0.1  # where the suite's smallest shape is a large one, fewer calls
SHORT_CALLS = 200  # of Python alone: long enough to forget the pass before, whose threads still look for work


def _sample(run: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return 1e6 * (time.perf_counter() - start) / calls


def _returns_zero() -> Any:
    """A C function that takes what gnomon_forward takes and answers GNOMON_OK at once: pthread_equal looks at its first
    two arguments, two addresses that differ, and at nothing else."""
    function = ctypes.CDLL(None).pthread_equal
    function.restype = ctypes.c_int
    return function


def measure(shape: Shape, setting: Setting) -> Dict[str, Any]:
    """Raises CannotRun when Gnomon does not answer there."""
    work = Work(shape, setting)
    module = gnomon.optimize(work.module_copy(), **setting.gnomon_options)
    x = work.x
    with torch.inference_mode():
        out = torch.empty_like(x)
        module(x)
        state = state_of(module)
        if state is None or state.fallbacks or not state.engines:
            raise CannotRun(f"Gnomon does not answer: {next(iter(state.fallbacks)) if state else 'no state'}")
        (engine,) = state.engines
        library, watch = engine._library, state._view.watch

        def call() -> Any:
            return module(x)

        forward = library.forward
        bare = _bare_call(engine, forward, x, out)
        calls = max(1, min(CALLS, int(SAMPLE_SECONDS / (1e-6 * _sample(bare, 1)))))
        whole, foreign, python, weights = [], [], [], []  # type: List[float], List[float], List[float], List[float]
        for _ in range(REPEATS):
            whole.append(_sample(call, calls))
            foreign.append(_sample(bare, calls))
            library.forward = _returns_zero()
            try:
                python.append(_sample(call, SHORT_CALLS))
            finally:
                library.forward = forward
            weights.append(_sample(lambda: watch.changed(module), SHORT_CALLS))
        overhead = _samples_without_driver(engine, shape, call) if setting.cuda else None
    return {
        "problem": shape.problem,
        "parameters": sum(1 for _ in module.parameters()),
        "python_us": spread(python),
        "weights_test_us": spread(weights),
        "call_us": spread(whole),
        "c_call_us": spread(foreign),
        "difference_us": spread([w - f for w, f in zip(whole, foreign)]),
        **({} if overhead is None else {"overhead_us": spread(overhead)}),
    }


def _samples_without_driver(engine: Any, shape: Shape, call: Callable[[], Any]) -> Optional[List[float]]:
    """None where the plan's launches are not the library's own."""
    torch.cuda.synchronize()
    start = " ".join(shape.problem.split()[:2]) + " "
    problem = next(record["problem"] for record in engine.explain() if record["problem"].startswith(start))
    idle = engine._library.handle("gnomon_idle_begin", engine._handle, problem.encode())
    if not idle:
        return None
    try:
        return [_sample(call, SHORT_CALLS) for _ in range(REPEATS)]
    finally:
        engine._library.dll.gnomon_idle_end(idle)


def _bare_call(engine: Any, forward: Any, x: torch.Tensor, out: torch.Tensor) -> Callable[[], Any]:
    source, target = _tensor(x), _tensor(out)
    arguments = engine._handle, ctypes.byref(source), None, ctypes.byref(target), current_stream(x.device.index or 0) if x.is_cuda else None

    def bare(_alive: Any = (source, target)) -> Any:
        return forward(*arguments)

    return bare
