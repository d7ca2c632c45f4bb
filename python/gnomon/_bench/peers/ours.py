"""Gnomon through the drop-in, as a user calls it."""

from __future__ import annotations

from typing import Any, Dict

import torch

import gnomon

from ..shared import Shape
from ..work import CannotRun, Setting, Work
from .peer import Peer, Ready

KEPT = ("problem", "winner", "effort", "seconds", "plain_seconds", "worst", "bound", "notes")  # of the plan's record


def _explained(module: torch.nn.Module) -> Dict[str, Any]:
    (entry,) = gnomon.explain(module).as_dict()["modules"]
    return entry


def build(work: Work) -> Ready:
    module = gnomon.optimize(work.module_copy(), **work.setting.gnomon_options)
    x, mask = work.x, work.mask

    def run() -> torch.Tensor:
        with torch.inference_mode():
            return module(x, mask)

    ready = Ready(run)

    def after() -> None:
        """A fallback is not Gnomon's figure, and may never pass for it."""
        entry = _explained(module)
        if entry["fallbacks"]:
            raise CannotRun("fell back to the module's own forward: " + entry["fallbacks"][0]["reason"])
        if not entry["answered"]:
            raise CannotRun("Gnomon answered no call")
        records = [{key: record[key] for key in KEPT if key in record} for record in entry["problems"]]
        ready.record = {"plans": records, "engines": entry["engines"]}
        ready.notes = [str(record["winner"]) for record in records if "winner" in record]

    ready.after = after
    return ready


def _bytes(shape: Shape, setting: Setting) -> int:
    """Input, output and some scratch: it goes through the batch in slices where there is little, and says itself what is too little."""
    return 3 * shape.activation_bytes


PEERS = [Peer("gnomon", "Gnomon", build, bytes=_bytes)]
