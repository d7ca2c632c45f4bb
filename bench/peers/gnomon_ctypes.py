"""Gnomon's C interface (include/gnomon/gnomon.h) through ctypes, for numpy arrays: for the comparison and the tests."""

import ctypes
import json
import os
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DTYPES = {np.dtype(np.float32): 0, np.dtype(np.float16): 1, np.dtype(np.float64): 3}
KINDS = {1: "caller error", 2: "environment error", 3: "internal error"}


class GnomonError(RuntimeError):
    def __init__(self, status: int, message: str):
        super().__init__(f"{KINDS.get(status, status)}: {message}")
        self.status = status


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

    @classmethod
    def of(cls, array: np.ndarray) -> "Tensor":
        if array.ndim != 3:
            raise ValueError(f"expected an array [B, S, d_model], got shape {array.shape}")
        strides = [stride // array.itemsize for stride in array.strides]
        return cls(
            array.ctypes.data, DTYPES[array.dtype], (ctypes.c_int64 * 3)(*array.shape), (ctypes.c_int64 * 3)(*strides)
        )


class Mask(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2), ("strides", ctypes.c_int64 * 2)]

    @classmethod
    def of(cls, array: np.ndarray) -> "Mask":
        if array.dtype not in (np.bool_, np.uint8) or array.ndim != 2:
            raise ValueError(f"expected a boolean mask [B, S], got {array.dtype} of shape {array.shape}")
        return cls(array.ctypes.data, (ctypes.c_int64 * 2)(*array.shape), (ctypes.c_int64 * 2)(*array.strides))


def default_library() -> Path:
    return Path(os.environ.get("GNOMON_LIBRARY", ROOT / "build" / "release" / "libgnomon.so"))


class Library:
    def __init__(self, path: Path | None = None):
        self.path = Path(path or default_library())
        if not self.path.exists():
            raise FileNotFoundError(f"no {self.path}: build it first (./run test), or name it in GNOMON_LIBRARY")
        self.dll = ctypes.CDLL(str(self.path))
        self.dll.gnomon_version.restype = self.dll.gnomon_last_error.restype = ctypes.c_char_p
        for destroy in ("weights", "options", "engine"):
            function = getattr(self.dll, f"gnomon_{destroy}_destroy")
            function.restype, function.argtypes = None, [ctypes.c_void_p]
        self.dll.gnomon_free.restype, self.dll.gnomon_free.argtypes = None, [ctypes.c_void_p]

    def version(self) -> str:
        return self.dll.gnomon_version().decode()

    def check(self, status: int) -> None:
        if status != 0:
            raise GnomonError(status, self.dll.gnomon_last_error().decode())

    def text(self, function: str, *arguments) -> str:
        out = ctypes.c_void_p()
        self.check(getattr(self.dll, function)(*arguments, ctypes.byref(out)))
        try:
            return ctypes.string_at(out.value).decode()
        finally:
            self.dll.gnomon_free(out)

    def handle(self, function: str, *arguments) -> ctypes.c_void_p:
        out = ctypes.c_void_p()
        self.check(getattr(self.dll, function)(*arguments, ctypes.byref(out)))
        return out


class Weights:
    def __init__(self, library: Library, handle: ctypes.c_void_p, keep_alive=None):
        self.library, self.handle, self.keep_alive = library, handle, keep_alive

    @classmethod
    def from_safetensors(cls, library: Library, path: Path, config: str | None = None) -> "Weights":
        return cls(
            library,
            library.handle("gnomon_weights_from_safetensors", str(path).encode(), config.encode() if config else None),
        )

    @classmethod
    def from_tensors(cls, library: Library, config: str, tensors: dict[str, np.ndarray]) -> "Weights":
        arrays = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        shapes = [(ctypes.c_int64 * a.ndim)(*a.shape) for a in arrays.values()]
        named = (NamedTensor * len(arrays))(
            *[
                NamedTensor(name.encode(), a.ctypes.data, DTYPES[a.dtype], a.ndim, shape)
                for (name, a), shape in zip(arrays.items(), shapes, strict=True)
            ]
        )
        handle = library.handle("gnomon_weights_from_tensors", config.encode(), named, ctypes.c_size_t(len(arrays)))
        return cls(library, handle, keep_alive=arrays)

    def config(self) -> str:
        return self.library.text("gnomon_weights_config", self.handle)

    def __del__(self):
        self.library.dll.gnomon_weights_destroy(self.handle)


class Engine:
    """Options are text, as gnomon_options_set takes them: budget="2", force="fused_qkv=off"."""

    def __init__(self, library: Library, weights: Weights, **options: str):
        self.library, self.weights = library, weights
        self.handle = None
        settings = library.handle("gnomon_options_create")
        try:
            for name, value in options.items():
                library.check(library.dll.gnomon_options_set(settings, name.encode(), str(value).encode()))
            self.handle = library.handle("gnomon_engine_create", weights.handle, settings)
        finally:
            library.dll.gnomon_options_destroy(settings)

    def bind(self, function: str, x: np.ndarray, out: np.ndarray, mask: np.ndarray | None = None):
        """The call with its arguments already converted: calling it costs one foreign call. Arrays are kept alive."""
        call = getattr(self.library.dll, function)
        tensors = Tensor.of(x), Mask.of(mask) if mask is not None else None, Tensor.of(out)
        arguments = [
            self.handle,
            ctypes.byref(tensors[0]),
            ctypes.byref(tensors[1]) if tensors[1] else None,
            ctypes.byref(tensors[2]),
            None,
        ]
        alive = (x, out, mask, tensors)

        def run(_alive=alive) -> None:
            status = call(*arguments)
            if status:
                self.library.check(status)

        return run

    def forward(self, x: np.ndarray, mask: np.ndarray | None = None, out: np.ndarray | None = None) -> np.ndarray:
        out = np.full(x.shape, np.nan, x.dtype) if out is None else out
        self.bind("gnomon_forward", x, out, mask)()
        return out

    def plan(self, x: np.ndarray, mask: np.ndarray | None = None, out: np.ndarray | None = None) -> None:
        self.bind("gnomon_plan", x, np.empty_like(x) if out is None else out, mask)()

    def explain(self, problem: str | None = None) -> dict:
        return json.loads(self.library.text("gnomon_explain", self.handle, problem.encode() if problem else None))

    def stats(self) -> dict:
        return json.loads(self.library.text("gnomon_stats", self.handle))

    def __del__(self):
        if self.handle:
            self.library.dll.gnomon_engine_destroy(self.handle)
