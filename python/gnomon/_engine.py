"""One engine of the library for one set of weights, called with PyTorch tensors where they lie."""

from __future__ import annotations

import _thread
import atexit
import ctypes
import itertools
import json
import threading
import time
import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple

import torch

from ._device import current_stream, in_host_memory
from ._errors import GnomonError
from ._library import Library, Mask, NamedTensor, Tensor, library

DTYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2}  # gnomon_dtype
TAKES_DTYPES = f"the library takes {', '.join(str(dtype)[6:] for dtype in DTYPES)}"
_PREPARED_KEPT = 256  # per thread, a few hundred bytes each; lengths vary in life


class _Call:
    """The C arguments of a call but for the addresses: making them anew would cost more than the call."""

    __slots__ = ("input", "output", "arguments", "met")

    def __init__(self, x: torch.Tensor, out: torch.Tensor):
        self.met: "set[int]" = set()  # the engines, with mask or without, that were asked for it before
        self.input, self.output = _tensor(x), _tensor(out)
        self.arguments = ctypes.byref(self.input), ctypes.byref(self.output)


class _Prepared(threading.local):
    """Each thread has its own, because the addresses are written into them."""

    def __init__(self) -> None:
        self.calls: Dict[Any, _Call] = {}
        self.masks: Dict[Any, Tuple[Mask, Any]] = {}

    def call(self, key: Any, x: torch.Tensor, out: torch.Tensor) -> _Call:
        if len(self.calls) >= _PREPARED_KEPT:
            self.calls.clear()
        return self.calls.setdefault(key, _Call(x, out))

    def mask(self, tensor: torch.Tensor) -> Any:
        key = tensor.shape, tensor.stride()
        found = self.masks.get(key)
        if found is None:
            if len(self.masks) >= _PREPARED_KEPT:
                self.masks.clear()
            mask = Mask(0, (ctypes.c_int64 * 2)(*tensor.shape), (ctypes.c_int64 * 2)(*tensor.stride()))
            found = self.masks[key] = (mask, ctypes.byref(mask))
        found[0].data = tensor.data_ptr()
        return found[1]


_prepared = _Prepared()


def _tensor(t: torch.Tensor) -> Tensor:
    return Tensor(t.data_ptr(), DTYPES[t.dtype], (ctypes.c_int64 * 3)(*t.shape), (ctypes.c_int64 * 3)(*t.stride()))


class Engine:
    """Weights and their plans. Shared by threads; `refresh` waits for the calls under way and keeps new ones waiting.

    The library uses fp32 tensors where they lie in host memory, so they are kept alive here until no call can use them.
    """

    def __init__(self, config: str, tensors: Mapping[str, torch.Tensor], options: Mapping[str, str]):
        self.config = config
        self._library = library()
        first = _readable(tensors)
        self._kept = [first]  # what the library may read
        self._lock = threading.Lock()
        self._open = True
        self._inside: "set[_Call]" = set()
        self._number = next(_numbers)
        self.device = options.get("device", "cpu")
        self._has_streams = self.device != "cpu"
        self._index = int(self.device.partition(":")[2] or 0)
        settings = make_options(options)
        try:
            weights = _weights(self._library, config, first)
            try:
                self._handle = self._library.handle("gnomon_engine_create", weights, settings)
            finally:
                self._library.dll.gnomon_weights_destroy(weights)
        finally:
            self._library.dll.gnomon_options_destroy(settings)
        self._finalizer = weakref.finalize(self, self._library.dll.gnomon_engine_destroy, self._handle)
        self._finalizer.atexit = False  # the system takes the memory back; other threads may still be inside
        _engines.add(self)

    def abandon(self) -> None:
        """Never gives the handle back: in a forked child it may be locked by a thread that exists no more."""
        self._finalizer.detach()

    def refresh(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """New weights of the same structure."""
        fresh = _readable(tensors)
        with self._lock:
            self._open = False
            try:
                while self._inside:  # they use the old tensors, which must not die under them
                    time.sleep(5e-5)
                weights = _weights(self._library, self.config, fresh)
                self._kept.append(fresh)  # before the library has them: an interrupt may come right after
                try:
                    self._library.check(self._library.dll.gnomon_engine_refresh(self._handle, weights))
                finally:
                    self._library.dll.gnomon_weights_destroy(weights)
                del self._kept[:-1]
            finally:
                self._open = True

    def forward(self, x: torch.Tensor, mask: Optional[torch.Tensor], out: torch.Tensor, dense: bool = False) -> None:
        """out = stack(x). x, out: [B, S, d_model], any strides, out may be x; mask: [B, S] bool, True = valid.

        dense: both are known to be contiguous and of one dtype, which saves asking for the strides."""
        key = (x.shape, x.dtype) if dense else (x.shape, x.stride(), x.dtype, out.stride(), out.dtype)
        call = _prepared.calls.get(key)
        if call is None:
            call = _prepared.call(key, x, out)
        call.input.data = x.data_ptr()
        call.output.data = out.data_ptr()
        source, target = call.arguments
        valid = None if mask is None else _prepared.mask(mask)
        inside = self._inside
        try:  # around all of it: an interrupt that left the call inside would keep refresh waiting for ever
            inside.add(call)
            while not self._open:  # set first, looked at second: refresh does it the other way round
                inside.discard(call)
                with self._lock:
                    inside.add(call)
            stream = current_stream(self._index) if self._has_streams else None
            problem = self._number + (valid is not None)
            # On a device the call stays in its thread, to which the driver's current context and a capture's mode belong.
            if problem in call.met or self._has_streams or threading.current_thread() is not threading.main_thread():
                status = self._library.forward(self._handle, source, valid, target, stream)
            else:
                call.met.add(problem)
                self._first_forward((x, mask, out, call), self._handle, source, valid, target, stream)
                status = 0
        finally:
            inside.discard(call)
        if status:
            raise self._library.error(status)

    def _first_forward(self, kept: Any, *arguments: Any) -> None:
        """A call that may plan, for seconds, in a thread of its own: a Ctrl-C reaches the main thread's Python only, never a
        C function that it is in. It cuts the planning short, and is raised when the call is over. `kept` lives as long."""
        once, over = threading.Lock(), threading.Event()
        errors: List[GnomonError] = []

        def work(kept: Any) -> None:
            if once.acquire(False):
                try:
                    status = self._library.forward(*arguments)
                    errors.extend([self._library.error(status)] if status else [])
                finally:
                    over.set()

        begun, interrupt = False, None
        while not over.is_set():
            try:
                if not begun:
                    _thread.start_new_thread(work, (kept,))  # a second time, were it interrupted here, does nothing
                    begun = True
                if interrupt is not None:
                    self._library.dll.gnomon_cancel(self._handle)
                over.wait(None if interrupt is None else 0.02)  # again: the planning may not have begun yet
            except KeyboardInterrupt as raised:
                interrupt = raised
            except RuntimeError:  # no thread can be started
                work(kept)
        if interrupt is not None:
            raise interrupt
        if errors:
            raise errors[0]

    def explain(self) -> List[Dict[str, Any]]:
        """The records of the problems that were planned, as `gnomon explain --json` gives them."""
        return json.loads(self._library.text("gnomon_explain", self._handle, None))

    def stats(self) -> Dict[str, int]:
        return json.loads(self._library.text("gnomon_stats", self._handle))


_engines: "weakref.WeakSet[Engine]" = weakref.WeakSet()
_numbers = itertools.count(0, 2)


@atexit.register
def _keep_weights_to_the_end() -> None:
    """The interpreter frees tensors before the process's own exit ends the planning in the background that reads them."""
    for engine in list(_engines):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(engine._kept))


def make_options(options: Mapping[str, str]) -> ctypes.c_void_p:
    """A gnomon_options handle. Raises CallerError for an unknown name or a value that it does not take."""
    lib = library()
    settings = lib.handle("gnomon_options_create")
    try:
        for name, value in options.items():
            lib.check(lib.dll.gnomon_options_set(settings, name.encode(), value.encode()))
    except BaseException:
        lib.dll.gnomon_options_destroy(settings)
        raise
    return settings


def _readable(tensors: Mapping[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
    return {name: in_host_memory(tensor) for name, tensor in tensors.items()}


def _weights(lib: Library, config: str, tensors: Mapping[str, torch.Tensor]) -> ctypes.c_void_p:
    shapes = [(ctypes.c_int64 * t.dim())(*t.shape) for t in tensors.values()]
    named = (NamedTensor * len(tensors))(
        *[
            NamedTensor(name.encode(), t.data_ptr(), DTYPES[t.dtype], t.dim(), shape)
            for (name, t), shape in zip(tensors.items(), shapes)
        ]
    )
    return lib.handle("gnomon_weights_from_tensors", config.encode(), named, len(tensors))
