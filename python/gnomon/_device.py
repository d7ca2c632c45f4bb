"""The one place that maps PyTorch's devices to Gnomon's: another backend is one more branch here."""

from __future__ import annotations

from typing import Optional

import torch

from ._errors import NotRecognised


def engine_device(device: torch.device) -> str:
    """The engine's `device` option for tensors there. Raises NotRecognised when no backend serves it."""
    if device.type == "cpu":
        return "cpu"
    raise NotRecognised(f"tensors are on {device}, and this version of Gnomon computes on the CPU alone")


def current_stream(device: torch.device) -> Optional[int]:
    """The caller's current stream there, as the C interface takes it; None where there are none, as on the CPU."""
    return None
