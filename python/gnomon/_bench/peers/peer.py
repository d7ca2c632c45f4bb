"""What a peer is, and how the installed PyTorch answers questions about itself."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Callable, ContextManager, Dict, Iterator, List, Optional

import torch
from torch.nn import functional as F

from ..shared import Shape, machine
from ..work import Setting, Work, eager_bytes

HAS_SDPA = hasattr(F, "scaled_dot_product_attention")
NO_SDPA = f"scaled_dot_product_attention came with PyTorch 2.0; this is {torch.__version__}"


@dataclass
class Ready:
    """A peer that can be called on its work."""

    run: Callable[[], torch.Tensor]
    notes: List[str] = field(default_factory=list)
    after: Optional[Callable[[], None]] = None  # raises CannotRun when what ran was not what the row says
    record: Dict[str, Any] = field(default_factory=dict)  # for the JSON
    around: Callable[[], ContextManager[None]] = nullcontext  # what must hold while it runs; entered once a turn, untimed


@contextmanager
def all_cores() -> Iterator[None]:
    """PyTorch with a thread for every core: as it comes it may use fewer (Debian's counts cores without their siblings)."""
    before = torch.get_num_threads()
    torch.set_num_threads(machine.cores())
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _never(setting: Setting) -> Optional[str]:
    return None


def module_bytes(shape: Shape, setting: Setting) -> int:
    """Of the reference, run as it is."""
    return eager_bytes(shape, torch.finfo(setting.dtype).bits // 8)


@dataclass(frozen=True)
class Peer:
    name: str
    title: str
    build: Callable[[Work], Ready]
    refuse: Callable[[Setting], Optional[str]] = _never
    bytes: Callable[[Shape, Setting], int] = module_bytes
