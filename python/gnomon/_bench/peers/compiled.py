"""torch.compile of the reference module: its modes, each in three precisions."""

from __future__ import annotations

from typing import Callable, Optional

import torch

from ..shared import Shape
from ..work import Setting, Work, eager_bytes
from .eager import TITLES, caller, plain, refuse_precision
from .peer import Peer, Ready

MODES = ("default", "reduce-overhead", "max-autotune")


def _refuser(mode: str, precision: str) -> Callable[[Setting], Optional[str]]:
    def refuse(setting: Setting) -> Optional[str]:
        if not hasattr(torch, "compile"):
            return f"torch.compile came with PyTorch 2.0; this is {torch.__version__}"
        if mode == "reduce-overhead" and not setting.cuda:
            return "the mode replays CUDA graphs, which the CPU does not have"
        return refuse_precision(precision, setting)

    return refuse


def _builder(mode: str, precision: str) -> Callable[[Work], Ready]:
    def build(work: Work) -> Ready:
        module = torch.compile(plain(work), mode=mode, dynamic=False)
        ready = caller(module, work, precision)
        # Modes that replay graphs answer in memory which the next call overwrites; saying that a step begins allows it.
        begin = getattr(getattr(torch, "compiler", None), "cudagraph_mark_step_begin", None)
        if begin is not None and work.setting.cuda and mode != "default":
            run = ready.run

            def stepped() -> torch.Tensor:
                begin()
                return run()

            ready.run = stepped
        return ready

    return build


def _bytes(shape: Shape, setting: Setting) -> int:
    return eager_bytes(shape, 4)


PEERS = [
    Peer(
        f"compile-{mode}" if precision == "f32" else f"compile-{mode}-{precision}",
        f"torch.compile, {mode}{words}",
        _builder(mode, precision),
        _refuser(mode, precision),
        _bytes,
    )
    for mode in MODES
    for precision, words in TITLES.items()
]
