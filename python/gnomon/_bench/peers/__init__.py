"""Who takes part. A peer says why it cannot (`refuse`), or makes a function of no arguments that answers the work (`build`).

A new peer is one row of ALL.
"""

from __future__ import annotations

import fnmatch
from typing import List

from . import by_hand, compiled, eager, ours
from .peer import Peer, Ready

ALL: List[Peer] = [*eager.REFERENCE, *ours.PEERS, *by_hand.PEERS, *eager.PEERS, *compiled.PEERS]
NAMES = [peer.name for peer in ALL]


def chosen(patterns: List[str]) -> List[Peer]:
    """The peers whose names match any pattern; the reference is always one. Raises ValueError when a pattern matches none."""
    for pattern in patterns:
        if not fnmatch.filter(NAMES, pattern):
            raise ValueError(f"no peer is called '{pattern}'; there are: {', '.join(NAMES)}")
    return [p for p in ALL if p.name == "reference" or any(fnmatch.fnmatch(p.name, pattern) for pattern in patterns)]


__all__ = ["ALL", "NAMES", "Peer", "Ready", "chosen"]
