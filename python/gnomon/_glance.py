"""One look in C at all that a watch watches, a tenth of the time that comparing it in Python takes (src/api/python_watch.cpp).
Dictionaries are watched by CPython itself (3.12), tensors are read by PyTorch's own C functions (its stable C shim). Where one
of the two is missing, that half is compared in Python as ever.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import sysconfig
import weakref
from pathlib import Path
from typing import Any, Callable, Iterable, Optional, Sequence

import torch

from ._library import library

ATTRIBUTES, TENSORS = 1, 2  # what has to be looked at more closely
_READERS = (
    "_ZNK2at10TensorBase8_versionEv",  # at::TensorBase::_version() const
    "aoti_torch_get_data_ptr",
    "aoti_torch_get_sizes",
    "aoti_torch_get_strides",
)


class Glance:
    """Objects are held by their addresses only: its owner keeps them alive."""

    def __init__(self, address: int, is_whole: bool):
        lib, handle = library().locked, ctypes.c_void_p(address)
        self.is_whole = is_whole  # nothing is left for Python to compare
        self.look: Callable[[], int] = functools.partial(lib.gnomon_watch_look, handle)
        self.changes: Callable[[], int] = lib.gnomon_watch_changes
        self._settle = functools.partial(lib.gnomon_watch_settle, handle)
        weakref.finalize(self, lib.gnomon_watch_destroy, handle).atexit = False

    def settle(self, changes: int) -> None:
        """Attributes are as they were, says who compared them after reading `changes`."""
        self._settle(ctypes.c_uint64(changes))


def glance(
    dicts: Iterable[Any], kinds: Iterable[type], modules: Sequence[Any], tensors: Sequence[torch.Tensor]
) -> Optional[Glance]:
    """From now on: changes of the dictionaries and of the classes, other classes of the modules, other contents of the tensors.
    None where C can see neither half. Not seen is a class that is given other bases."""
    if not _is_known_build():
        return None
    watcher, readers = _dict_watcher(), _tensor_readers()
    if watcher is None and readers is None:
        return None
    if watcher is not None:
        for each in [*dicts, *map(_dict_of, {base for kind in kinds for base in kind.__mro__ if base is not object})]:
            _python().PyDict_Watch(watcher, ctypes.py_object(each))
    objects, types = _addresses(map(id, modules)), _addresses(map(id, map(type, modules)))
    seen = (_Seen * len(tensors))(*map(_seen, tensors))
    for reads in (readers, None):  # without the tensors where one of them is laid out in another way
        if watcher is not None or reads is not None:
            handle = library().locked.gnomon_watch_create(watcher is not None, len(modules), objects, types, reads, len(seen), seen)
            if handle is not None:
                return Glance(handle, watcher is not None and reads is not None)
    return None


class _Readers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("version", "data", "sizes", "strides")] + [("object_size", ctypes.c_size_t)]


class _Seen(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("object", "implementation", "data")]
    _fields_ += [("version", ctypes.c_int64), ("rank", ctypes.c_int64), ("layout", ctypes.POINTER(ctypes.c_int64))]


def _seen(t: torch.Tensor) -> _Seen:
    layout = (ctypes.c_int64 * (2 * t.dim()))(*t.shape, *t.stride())
    return _Seen(id(t), t._cdata, t.data_ptr(), t._version, t.dim(), layout)


def _addresses(numbers: Iterable[int]) -> Any:
    found = list(numbers)
    return (ctypes.c_void_p * len(found))(*found)


def _is_known_build() -> bool:
    return platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")


@functools.lru_cache(maxsize=None)
def _python() -> Any:
    return ctypes.PyDLL(None)


@functools.lru_cache(maxsize=None)
def _dict_watcher() -> Optional[int]:
    """None before Python 3.12, in those that forget some stores (3.13), when other packages have taken all there are, and where
    Python's functions are not to be seen (embedded)."""
    if sys.version_info < (3, 12):
        return None
    try:
        watcher = _python().PyDict_AddWatcher(library().locked.gnomon_watch_count)
    except (RuntimeError, AttributeError):
        return None
    return watcher if _counts_every_store(watcher) else None


class _Probe:
    def __init__(self) -> None:
        self.value = 0


def _counts_every_store(watcher: int) -> bool:
    """Also where the interpreter keeps attributes in the object itself, and where it has warmed to a store. What stores the value
    that is there may go uncounted."""
    changes, probe = library().locked.gnomon_watch_changes, _Probe()
    _python().PyDict_Watch(watcher, ctypes.py_object(vars(probe)))
    counted = [changes()]
    for number in range(1, 200):
        probe.value = number
        counted.append(changes())
        setattr(probe, "value", -number)
        counted.append(changes())
        object.__setattr__(probe, "other", number)
        counted.append(changes())
        del probe.other  # type: ignore[attr-defined]
        counted.append(changes())
    return all(after > before for before, after in zip(counted, counted[1:]))


def _dict_of(kind: type) -> Any:
    get = _python().PyType_GetDict
    get.restype = ctypes.py_object
    return get(ctypes.py_object(kind))


@functools.lru_cache(maxsize=None)
def _tensor_readers() -> Any:
    """A reference to PyTorch's functions, or None."""
    try:
        # The one that is loaded: a second one would register its operators again.
        lib = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        functions = [ctypes.cast(getattr(lib, name), ctypes.c_void_p) for name in _READERS]
    except (OSError, AttributeError):
        return None
    return ctypes.pointer(_Readers(*functions, torch.Tensor.__base__.__basicsize__))
