"""What PyTorch may be doing around a call that a foreign function cannot take part in.

Some of these functions are PyTorch's own business; one that a release does not have is left out, and what it told of does
not exist there either.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

import torch
from torch.autograd import forward_ad


def _never() -> bool:
    return False


def _found(where: Any, *names: str) -> Callable[[], Any]:
    for name in names:
        where = getattr(where, name, None)
        if where is None:
            return _never
    return where


_dynamo = _found(torch, "compiler", "is_compiling")
if _dynamo is _never and hasattr(torch, "_dynamo"):
    _dynamo = _found(torch, "_dynamo", "is_compiling")
compiling: Callable[[], bool] = _dynamo

_tracing = _found(torch._C, "_get_tracing_state")
_function_modes = _found(torch._C, "_len_torch_function_stack")
_dispatch_modes = _found(torch._C, "_len_torch_dispatch_stack")
_transforms = _found(torch._C, "_functorch", "peek_interpreter_stack")
if _transforms is _never:
    _transforms = _found(torch._C, "_functorch", "are_transforms_active")

try:  # before 2.4 it took no argument, and the CPU had a function of its own
    torch.is_autocast_enabled("cpu")

    _any_autocast = getattr(torch._C, "_is_any_autocast_enabled", lambda: True)  # one question for all devices

    def _autocast() -> bool:
        return _any_autocast() and (torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"))

except TypeError:
    _cpu, _cuda = torch.is_autocast_cpu_enabled, torch.is_autocast_enabled

    def _autocast() -> bool:
        return _cpu() or _cuda()


def _only_default_device() -> bool:
    """torch.set_default_device is a function mode too, but changes nothing of a forward pass."""
    stack = torch.overrides._get_current_function_mode_stack()
    return all(type(mode).__name__ == "DeviceContext" for mode in stack)


def unusual() -> Optional[str]:
    """Why the module's own forward must run now, whatever the module is; None when nothing stands against ours."""
    if _tracing():
        return "torch.jit is tracing"
    if _autocast():
        return "autocast is on"
    if _dispatch_modes():
        return "a TorchDispatchMode is on"
    if _function_modes() and not _only_default_device():
        return "a TorchFunctionMode is on"
    if _transforms():
        return "a functorch transform (vmap, grad, jvp, ...) is on"
    if forward_ad._current_level >= 0:
        return "forward-mode differentiation is on"
    return None
