#!/usr/bin/env python3
"""Where Python's part of a call through the drop-in goes, at the suite's smallest shape: each part alone, warm in the caches, the
library's C function replaced by one that returns at once. Least of the rounds, in microseconds. Parts overlap where indented.

    PYTHONPATH=python python3 bench/dropin_parts.py [cpu | cuda:0]
"""

from __future__ import annotations

import sys
import time
from typing import Any, Callable

import torch
from torch import nn

import gnomon
from gnomon import _device, _modes
from gnomon._bench import overhead
from gnomon._bench.shared import SUITE, load_suite
from gnomon._bench.work import Setting, Work
from gnomon._checks import check_request, check_tensor
from gnomon._state import state_of

ROUNDS, CALLS = 25, 1000


class Same(nn.Module):
    def forward(self, x: Any) -> Any:
        return x


def show(name: str, run: Callable[[], Any]) -> None:
    def sample() -> float:
        start = time.perf_counter()
        for _ in range(CALLS):
            run()
        return 1e6 * (time.perf_counter() - start) / CALLS

    print(f"{min(sample() for _ in range(ROUNDS)):7.2f}  {name}", flush=True)


def show_parts(module: nn.Module, same: nn.Module, x: torch.Tensor, device: torch.device) -> None:
    state = state_of(module)
    (engine,) = state.engines
    view, out = state._view, torch.empty_like(x)
    request = state.request(module, (x,), {})
    bare = overhead._bare_call(engine, engine._library.forward, x, out)
    show("the whole call", lambda: module(x))
    show("PyTorch's own call of a module", lambda: same(x))
    show("the module's state", lambda: state_of(module))
    show("what the call means (request)", lambda: state.request(module, (x,), {}))
    show("    PyTorch's modes", _modes.unusual)
    show("    test of the weights", lambda: view.watch.changed(module))
    show("    the adapter's bind", lambda: state.adapter.bind(module, view.stack, x))
    show("    checks of the tensor", lambda: (check_tensor(x, False), check_request(request, device, "computed")))
    show("the answer", lambda: state.answer(request, None))
    show("    the output", lambda: torch.empty_like(x))
    show("    Engine.forward", lambda: engine.forward(x, None, out, True))
    show("        a C function that returns at once", bare)
    if device.type == "cuda":
        show("        the current stream", lambda: _device.current_stream(device.index or 0))
        show("not asked any more: whether a graph is captured", _device.tests_weights_late)


def main(where: str) -> None:
    device = torch.device(where)
    limits, shapes = load_suite(SUITE)
    work = Work(shapes[0], Setting(device, torch.float32, "none", 0, limits, {}))
    module, x, same = gnomon.optimize(work.module_copy(), effort="estimate", plan_dir=None), work.x, Same().eval()
    print(f"{shapes[0].problem}, PyTorch {torch.__version__}, Python {sys.version.split()[0]}, {where}; us")
    with torch.inference_mode():
        module(x)
        (engine,) = state_of(module).engines
        library = engine._library
        forward, library.forward = library.forward, overhead._returns_zero()
        try:
            show_parts(module, same, x, device)
        finally:  # it is the process's
            library.forward = forward


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "cpu")
