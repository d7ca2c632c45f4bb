"""libgnomon.so: where it is, whether it is ours, and its C interface (include/gnomon/gnomon.h) through ctypes."""

from __future__ import annotations

import ctypes
import functools
import os
from pathlib import Path
from typing import Any, Optional

from ._errors import CallerError, EnvironmentError_, GnomonError, InternalError
from ._version import __version__

_ERRORS = {1: CallerError, 2: EnvironmentError_, 3: InternalError}
_FILE = "libgnomon.so"


class NamedTensor(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("rank", ctypes.c_int32),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
    ]


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("dtype", ctypes.c_int),
        ("shape", ctypes.c_int64 * 3),
        ("strides", ctypes.c_int64 * 3),
    ]


class Mask(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2), ("strides", ctypes.c_int64 * 2)]


def library_path() -> Path:
    """The library that this package loads: the one that GNOMON_LIBRARY names, else the wheel's, else a checkout's.

    Raises EnvironmentError_ when there is none.
    """
    named = os.environ.get("GNOMON_LIBRARY")
    if named:
        if not Path(named).is_file():
            raise EnvironmentError_(f"GNOMON_LIBRARY names {named}, which is no file: unset it, or build there")
        return Path(named)
    package = Path(__file__).resolve().parent
    places = [package / "lib" / _FILE]
    checkout = package.parents[1]
    if (checkout / "CMakeLists.txt").is_file():
        places.append(checkout / "build" / "release" / _FILE)
    for place in places:
        if place.is_file():
            return place
    tried = " and ".join(str(place) for place in places)
    raise EnvironmentError_(f"no {_FILE}: tried {tried}; install the wheel, or name the library in GNOMON_LIBRARY")


class Library:
    """The loaded library. Calls through `dll` release the interpreter's lock, so other threads go on meanwhile; what reads Python's
    objects (src/api/python_watch.cpp) is called through `locked`, which keeps it."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.dll, self.locked = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
        except OSError as error:
            raise EnvironmentError_(f"cannot load {path}: {error}") from None
        try:
            self._declare()
        except AttributeError as missing:  # ctypes names the symbol
            raise EnvironmentError_(
                f"{missing}: it is not of this package's build; build it again (./run build), or unset GNOMON_LIBRARY"
            ) from None
        version = self.dll.gnomon_version().decode()
        if version != __version__:
            raise EnvironmentError_(
                f"{path} is Gnomon {version}, this package is {__version__}: rebuild it, or unset GNOMON_LIBRARY"
            )

    def _declare(self) -> None:
        pointer, text, out = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
        signatures: "dict[str, tuple[Any, list[Any]]]" = {
            "gnomon_version": (text, []),
            "gnomon_last_error": (text, []),
            "gnomon_free": (None, [pointer]),
            "gnomon_weights_from_tensors": (ctypes.c_int, [text, ctypes.POINTER(NamedTensor), ctypes.c_size_t, out]),
            "gnomon_weights_destroy": (None, [pointer]),
            "gnomon_options_create": (ctypes.c_int, [out]),
            "gnomon_options_set": (ctypes.c_int, [pointer, text, text]),
            "gnomon_options_destroy": (None, [pointer]),
            "gnomon_engine_create": (ctypes.c_int, [pointer, pointer, out]),
            "gnomon_engine_destroy": (None, [pointer]),
            "gnomon_engine_refresh": (ctypes.c_int, [pointer, pointer]),
            "gnomon_cancel": (ctypes.c_int, [pointer]),
            "gnomon_explain": (ctypes.c_int, [pointer, text, out]),
            "gnomon_stats": (ctypes.c_int, [pointer, out]),
            "gnomon_idle_begin": (ctypes.c_int, [pointer, text, out]),
            "gnomon_idle_end": (None, [pointer]),
        }
        for name, (result, arguments) in signatures.items():
            function = getattr(self.dll, name)
            function.restype, function.argtypes = result, arguments
        size = ctypes.c_size_t
        self.locked.gnomon_watch_create.restype = pointer
        self.locked.gnomon_watch_create.argtypes = [ctypes.c_bool, size, *[pointer] * 3, size, pointer]
        self.locked.gnomon_watch_changes.restype = ctypes.c_uint64
        # Without argtypes: its callers pass ctypes objects made beforehand, and converting them again takes time.
        self.forward = self.dll.gnomon_forward
        self.forward.restype = ctypes.c_int

    def error(self, status: int) -> GnomonError:
        return _ERRORS.get(status, InternalError)(self.dll.gnomon_last_error().decode(errors="replace"))

    def check(self, status: int) -> None:
        if status:
            raise self.error(status)

    def handle(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        self.check(getattr(self.dll, function)(*arguments, ctypes.byref(out)))
        return out

    def text(self, function: str, *arguments: Any) -> str:
        out = self.handle(function, *arguments)
        try:
            return ctypes.string_at(out.value or 0).decode()
        finally:
            self.dll.gnomon_free(out)


@functools.lru_cache(maxsize=None)
def library(path: Optional[Path] = None) -> Library:
    """Loads the library once, when it is first needed."""
    return Library(path or library_path())
