"""What Gnomon knows about one module: its adapter, its structure as last seen, its engines, what fell back and why."""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import Any, Dict, Mapping, Optional

import torch
from torch import nn

from . import _device, _modes
from ._adapters import Adapter, Request, Stack, adapter_for, known
from ._adapters._protocol import expect_untouched
from ._engine import DTYPES, Engine
from ._errors import CallerError, EnvironmentError_, NotRecognised, expect
from ._options import engine_options
from ._weights_watch import GLOBAL_HOOKS, Watch

log = logging.getLogger("gnomon")

_TRAINING = "training mode: gradients and dropout are the module's own (module.eval() ends it)"
_GRADIENTS = "gradients are wanted: call it under torch.no_grad() or torch.inference_mode() (or freeze the parameters)"
_PLAIN_TENSORS = (torch.Tensor, nn.Parameter)


class State:
    """Made at the first call, or by gnomon.optimize; safe to share between threads. Holds no reference to the module."""

    def __init__(self, module: nn.Module, options: Mapping[str, Any]):
        self.options = dict(options)
        self.engine_options, self.padded_rows = engine_options(options)
        self.adapter = adapter_for(module)
        self.module_name = type(module).__name__
        self.fallbacks: Dict[str, int] = {}
        self.answered = 0
        self._lock = threading.RLock()
        self._forget()
        _all.add(self)

    def _forget(self) -> None:
        self._watch: Optional[Watch] = None
        self.stack: Optional[Stack] = None
        self.refusal: Optional[str] = None
        self.engines: Dict[bool, Engine] = {}
        self._device = torch.device("cpu")

    def after_fork(self) -> None:
        """In the child: threads of the parent may have held the locks, here and inside of the engines."""
        for engine in self.engines.values():
            engine.abandon()
        self._lock = threading.RLock()
        self._forget()

    def refresh(self) -> None:
        """The next call reads every weight again."""
        with self._lock:
            self._watch = None

    def request(self, module: nn.Module, args: Any, kwargs: Any) -> Request:
        """The call in the library's terms. Raises NotRecognised when the module's own forward has to answer."""
        if module.training:
            raise NotRecognised(_TRAINING)
        why = _modes.unusual()
        if why is not None:
            raise NotRecognised(why)
        watch = self._watch
        if watch is None or watch.changed(module):
            watch = self._look(module)
        if self.refusal is not None:
            raise NotRecognised(self.refusal)
        graded = torch.is_grad_enabled()
        if graded and watch.wants_gradients():
            raise NotRecognised(_GRADIENTS)
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, torch.Tensor):
                _check_tensor(argument, graded)
        adapter, stack = self.adapter, self.stack
        assert adapter is not None and stack is not None
        try:
            request = adapter.bind(module, stack, *args, **kwargs)
        except TypeError as error:
            raise NotRecognised(f"arguments that the adapter does not know: {error}") from None
        x, mask = request.x, request.mask
        _check_tensor(x, graded)
        if x.dtype not in DTYPES:
            raise NotRecognised(f"the input is {str(x.dtype)[6:]}; the library takes float32, float16 and bfloat16")
        if x.device != self._device:
            raise NotRecognised(f"the input is on {x.device}, the weights are on {self._device}")
        if request.causal is None:
            request.causal = stack.causal
        if mask is not None:
            _check_mask(request, mask)
            if request.own_blind_rows and self.padded_rows == "computed":
                _check_blind_rows(mask, request.causal)
        request.engine = self._engine(request.causal)
        return request

    def _look(self, module: nn.Module) -> Watch:
        """Reads the module anew. Its engines take the new weights, or go when its structure is another one."""
        with self._lock:
            watch = self._watch
            if watch is not None and not watch.changed(module):  # another thread was here first
                return watch
            self._watch = None
            inner = list(module.modules())[1:]
            try:
                expect(self.adapter is not None, f"no adapter knows {self.module_name}; there are: {known()}")
                assert self.adapter is not None
                stack = self.adapter.describe(module)
                parts = inner if stack.parts is None else list(stack.parts)
                watch = Watch(module, parts)
                expect(not any(GLOBAL_HOOKS), "hooks for all modules are registered (torch.nn.modules.module)")
                expect_untouched(parts, _names(module))
                stack.config(stack.causal)
                _device.engine_device(stack.device)
                self._renew_engines(stack)
                self.stack, self._device, self.refusal = stack, stack.device, None
            except (AttributeError, LookupError, TypeError) as odd:  # an adapter met something that it did not expect
                self.stack, self.refusal = None, f"its structure is another one: {type(odd).__name__}: {odd}"
                watch = _watch_for_refusal(module, inner)
            except (NotRecognised, CallerError, EnvironmentError_) as reason:
                self.stack, self.refusal = None, str(reason)
                watch = _watch_for_refusal(module, inner)
            self._watch = watch
            return watch

    def _renew_engines(self, stack: Stack) -> None:
        for causal, engine in list(self.engines.items()):
            if engine.config == stack.config(causal):
                engine.refresh(stack.tensors)
            else:
                del self.engines[causal]

    def _engine(self, causal: bool) -> Engine:
        engine = self.engines.get(causal)
        if engine is None:
            with self._lock:
                engine = self.engines.get(causal)
                if engine is None:
                    engine = self.engines[causal] = self._make_engine(causal)
        return engine

    def _make_engine(self, causal: bool) -> Engine:
        stack = self.stack
        if stack is None:  # another thread saw a change meanwhile
            raise NotRecognised(self.refusal or "the module changed during the call")
        options = {**self.engine_options, "device": _device.engine_device(stack.device)}
        try:
            return Engine(stack.config(causal), stack.tensors, options)
        except (CallerError, EnvironmentError_) as error:
            raise NotRecognised(f"the library cannot take its weights: {error}") from None

    def answer(self, request: Request, out: Optional[torch.Tensor]) -> Any:
        """Runs the request; `out` (of x's own layout) is made when there is none. Raises CallerError, EnvironmentError_."""
        x = request.x
        if out is None:
            out = torch.empty_like(x) if x.is_contiguous() else x.new_empty(x.shape)
        result = target = out
        if request.seq_first:
            x, target = x.transpose(0, 1), target.transpose(0, 1)
        request.engine.forward(x, request.mask, target)
        self.answered += 1
        return result if request.finish is None else request.finish(result)

    def fell_back(self, reason: str) -> None:
        """Counts, and says a reason the first time that this module gives it."""
        with self._lock:
            count = self.fallbacks.get(reason, 0)
            self.fallbacks[reason] = count + 1
        if count == 0:
            log.warning("%s: its own forward runs instead of Gnomon's: %s", self.module_name, reason)


def _check_tensor(x: torch.Tensor, graded: bool) -> None:
    if type(x) not in _PLAIN_TENSORS or x.is_nested or x.layout is not torch.strided or x.is_neg():
        raise NotRecognised(f"an argument is a {_describe(x)}, not a plain strided tensor")
    if graded and x.requires_grad:
        raise NotRecognised(_GRADIENTS)


def _check_mask(request: Request, mask: torch.Tensor) -> None:
    """The adapter made it, but of the caller's tensor: the library would read what lies at its address."""
    shape = request.x.shape[:2] if not request.seq_first else (request.x.shape[1], request.x.shape[0])
    if mask.dtype is not torch.bool or mask.shape != shape or mask.device != request.x.device:
        raise NotRecognised(
            f"the padding mask is {list(mask.shape)}, {str(mask.dtype)[6:]}, on {mask.device}; expected "
            f"{list(shape)}, bool, on {request.x.device}"
        )


def _check_blind_rows(mask: torch.Tensor, causal: bool) -> None:
    sighted = mask[:, 0] if causal else mask.any(1)
    if not bool(sighted.all()):
        raise NotRecognised(
            "a token sees no valid token, where the module's own answer is another one than Gnomon's; it does not "
            "matter when nobody reads padded rows: padded_rows='any'"
        )


def _describe(x: Any) -> str:
    if type(x) not in _PLAIN_TENSORS:
        return type(x).__name__
    if x.is_nested:
        return "nested tensor"
    return f"{x.layout} tensor" if x.layout is not torch.strided else "negated view"


def _names(module: nn.Module) -> Any:
    names = {id(part): name for name, part in module.named_modules()}
    return lambda part: f"`{names.get(id(part), type(part).__name__)}`"


def _watch_for_refusal(module: nn.Module, inner: Any) -> Watch:
    try:
        return Watch(module, inner)
    except NotRecognised:  # what cannot be watched is looked at again on every call
        return _AlwaysChanged()


class _AlwaysChanged(Watch):
    def __init__(self) -> None:
        pass

    def changed(self, root: nn.Module) -> bool:
        return True


_states: "weakref.WeakKeyDictionary[nn.Module, State]" = weakref.WeakKeyDictionary()
_all: "weakref.WeakSet[State]" = weakref.WeakSet()
_making = threading.Lock()


def state_of(module: nn.Module) -> Optional[State]:
    return _states.get(module)


def adopt(module: nn.Module, options: Optional[Mapping[str, Any]] = None) -> State:
    """The module's state, made when there is none (with the options of its class) or when options are given."""
    with _making:
        state = _states.get(module)
        if state is None or options is not None:
            chosen = getattr(type(module), "gnomon_options", {}) if options is None else options
            state = _states[module] = State(module, chosen)
        return state


def drop(module: nn.Module) -> None:
    _states.pop(module, None)


def _after_fork() -> None:
    global _making
    _making = threading.Lock()
    for state in list(_all):
        state.after_fork()


os.register_at_fork(after_in_child=_after_fork)
