"""The one place that maps PyTorch's devices to Gnomon's: another backend is one more branch here."""

from __future__ import annotations

import ctypes
import torch

from ._errors import CallerError, NotRecognised


def engine_device(device: torch.device) -> str:
    """The engine's `device` option for tensors there. Raises NotRecognised when no backend serves it."""
    if device.type == "cpu":
        return "cpu"
    if device.type == "cuda" and torch.version.hip is None:
        return f"cuda:{device.index or 0}"
    raise NotRecognised(f"tensors are on {device}, and Gnomon computes on CPUs and on NVIDIA's GPUs")


# Both are what the functions of torch.cuda call, less a lookup of the device and an object made for each answer.
_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (lambda index: torch.cuda.current_stream(index).cuda_stream)
_capturing = getattr(torch._C, "_cuda_isCurrentStreamCapturing", None) or torch.cuda.is_current_stream_capturing


def current_stream(index: int) -> ctypes.c_void_p:
    """The caller's current stream on the CUDA device of that number, as the C interface takes it. A plain number would do for the
    default stream alone: ctypes passes one as a C int, and half of the address would be lost."""
    return ctypes.c_void_p(_stream_of(index))


def has_streams(device: torch.device) -> bool:
    return device.type == "cuda"


def tests_weights_late() -> bool:
    """Whether a call is launched on a device with streams before a slow test of the weights, which then costs nothing while the
    device works. Not while a graph is captured: a launch that is thrown away would be a part of it."""
    return not _capturing()


def in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor, contiguous, where the library reads weights: itself, or a copy. Raises CallerError while a graph is captured:
    copying from a device ends the capture."""
    if tensor.device.type == "cuda" and _capturing():
        raise CallerError("weights cannot be read while a CUDA graph is captured: call the module once before the capture")
    return tensor.detach().to("cpu").contiguous()
