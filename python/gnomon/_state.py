"""What Gnomon knows about one module: its adapter, its structure as last seen, its engines, what fell back and why."""

from __future__ import annotations

import functools
import logging
import os
import threading
import weakref
from typing import Any, Callable, Dict, List, Mapping, Optional

import torch
from torch import nn

from . import _device, _modes
from ._adapters import Request, Stack, adapter_for, known
from ._adapters._protocol import expect_untouched, overridden
from ._checks import GRADIENTS, check_blind_rows, check_request, check_tensor
from ._engine import Engine
from ._errors import CallerError, EnvironmentError_, NotRecognised, expect
from ._options import engine_options
from ._weights_watch import GLOBAL_HOOKS, AlwaysChanged, Watch

log = logging.getLogger("gnomon")

_REASONS_KEPT = 32  # some name a shape, and shapes vary in life
_TRAINING = "training mode: gradients and dropout are the module's own (module.eval() ends it)"


class _View:
    """The module as it was last read: valid for as long as the watch sees no change. Never changed itself (engines are
    added), so that a thread which read the one before goes on with what belongs together."""

    def __init__(self, watch: Watch, stack: Optional[Stack], refusal: str, engines: Dict[bool, Engine]):
        self.watch, self.stack, self.refusal, self.engines = watch, stack, refusal, engines
        self.device = torch.device("cpu") if stack is None else stack.device
        runs_modules = stack is not None and stack.parts is not None  # in bind: hooks of theirs must fire once
        # A test of a microsecond costs less than asking whether a launch may be thrown away.
        self.may_launch_first = not runs_modules and not watch.is_quick and _device.has_streams(self.device)
        self.refreshed: object = None  # the State's own when it was begun to be read

    def has_weights_of(self, watch: Watch, stack: Stack) -> bool:
        """Whether engines that have read this view need not read the newer one: other attributes changed, such as a counter
        that a hook keeps on the module."""
        return self.stack is not None and self.stack.places() == stack.places() and self.watch.same_tensors(watch)


class State:
    """Made at the first call, or by gnomon.optimize; safe to share between threads. Holds no reference to the module."""

    def __init__(self, module: nn.Module, options: Mapping[str, Any]):
        self.options = dict(options)
        self.adapter = adapter_for(module)
        self.fallbacks: Dict[str, int] = {}
        self.answered = 0
        self._engine_options, self._padded_rows = engine_options(options)
        self._module_name = type(module).__name__
        self._lock = threading.RLock()
        self._view: Optional[_View] = None
        self._refreshed = object()  # another one with each refresh(): a view of the one before is out of date
        _all.add(self)

    @property
    def engines(self) -> List[Engine]:
        view = self._view
        return [] if view is None else list(view.engines.values())

    def after_fork(self) -> None:
        """In the child: threads of the parent may have held the locks, here and inside of the engines."""
        for engine in self.engines:
            engine.abandon()
        self._lock, self._view = threading.RLock(), None

    def refresh(self) -> None:
        """The next call reads every weight again."""
        self._refreshed = object()

    def stepped(self, parameters: "set[int]") -> None:
        """An optimizer wrote parameters with these ids."""
        view = self._view
        if view is not None and view.stack is not None and view.watch.holds_any(parameters):
            self.refresh()

    def request(self, module: nn.Module, args: Any, kwargs: Any, may_be_thrown_away: bool = False) -> Request:
        """The call in the library's terms. Raises NotRecognised when the module's own forward has to answer.

        may_be_thrown_away: the request may come with a watch that was not asked yet (`unwatched_by`): ask it afterwards.
        """
        if module.training:
            raise NotRecognised(_TRAINING)
        why = _modes.unusual()
        if why is not None:
            raise NotRecognised(why)
        view, unwatched_by = self._view, None
        if view is None or view.refreshed is not self._refreshed:
            view = self._look(module)
        elif view.may_launch_first and may_be_thrown_away and _device.tests_weights_late():
            unwatched_by = view.watch
        elif view.watch.changed(module):
            view = self._look(module)
        try:
            request = self._request_by(view, module, args, kwargs)
        except Exception:
            if unwatched_by is None or not unwatched_by.changed(module):
                raise
        else:
            request.unwatched_by = unwatched_by
            return request
        return self.request(module, args, kwargs)  # outside of the except: what it raises has nothing to do with that

    def _request_by(self, view: _View, module: nn.Module, args: Any, kwargs: Any) -> Request:
        stack, adapter = view.stack, self.adapter
        if stack is None or adapter is None:
            raise NotRecognised(view.refusal)
        graded = torch.is_grad_enabled()
        if graded and view.watch.wants_gradients():
            raise NotRecognised(GRADIENTS)
        for argument in (*args, *kwargs.values()) if kwargs else args:
            if isinstance(argument, torch.Tensor):
                check_tensor(argument, graded)
        try:
            request = adapter.bind(module, stack, *args, **kwargs)
        except (AttributeError, TypeError) as error:
            raise NotRecognised(f"arguments that the adapter does not know: {error}") from None
        if request.causal is None:
            request.causal = stack.causal
        if request.make_x is not None:
            if request.own_blind_rows and request.mask is not None and self._padded_rows == "computed":
                check_blind_rows(request.mask, bool(request.causal))
                request.own_blind_rows = False  # there are none
            request.x = request.make_x()
        if not args or request.x is not args[0] or not isinstance(request.x, torch.Tensor):
            check_tensor(request.x, graded)
        check_request(request, view.device, self._padded_rows)
        request.engine = view.engines.get(request.causal) or self._make_engine(view, request.causal)
        return request

    def answer(self, request: Request, out: Optional[torch.Tensor]) -> Any:
        """Runs the request; `out` (of x's own layout) is made when there is none. Raises CallerError, EnvironmentError_."""
        x = request.x
        dense = out is None and x.is_contiguous()
        if out is None:
            out = torch.empty_like(x) if dense else x.new_empty(x.shape)
        if request.seq_first:
            request.engine.forward(x.transpose(0, 1), request.mask, out.transpose(0, 1))
        else:
            request.engine.forward(x, request.mask, out, dense)
        return out if request.finish is None else request.finish(out)

    def fell_back(self, reason: str) -> None:
        """Counts, and says a reason the first time that this module gives it."""
        with self._lock:
            if len(self.fallbacks) >= _REASONS_KEPT and reason not in self.fallbacks:
                reason = "for reasons beside these, which are not said one by one any more"
            count = self.fallbacks.get(reason, 0)
            self.fallbacks[reason] = count + 1
        if count == 0:
            log.warning("%s: its own forward runs instead of Gnomon's: %s", self._module_name, reason)

    def _look(self, module: nn.Module) -> _View:
        """Reads the module anew. Its engines take the new weights, or go when its structure is another one."""
        with self._lock:
            view, refreshed = self._view, self._refreshed
            if view is not None and view.refreshed is refreshed and not view.watch.changed(module):
                return view  # another thread was here first
            engines = {} if view is None else view.engines
            watch: Watch = AlwaysChanged()  # what cannot be watched is read again on every call
            try:
                watch = Watch(module, list(module.modules())[1:])  # first: what changes beside the reading is a change
                before = view if view is not None and view.refreshed is refreshed else None
                view = self._read(module, watch, engines, before)
            except (NotRecognised, CallerError, EnvironmentError_) as reason:
                view = _View(watch, None, str(reason), engines)
            except (AttributeError, LookupError, TypeError, ValueError, RuntimeError) as odd:  # what no adapter expected
                view = _View(watch, None, f"its structure is another one: {type(odd).__name__}: {odd}", engines)
            view.refreshed = refreshed  # as it was before the reading: a refresh() since then asks for another one
            self._view = view
            return view

    def _read(self, module: nn.Module, watch: Watch, engines: Dict[bool, Engine], before: Optional[_View]) -> _View:
        """`before`: the view of which `engines` have read the weights, unless they have to be read again whatever it says."""
        if self.adapter is None:
            raise NotRecognised(f"no adapter knows {self._module_name}; there are: {known()}{_known_inside(module)}")
        stack, parts = self.adapter.describe(module), list(module.modules())[1:]
        if stack.parts is not None:
            whole, parts = watch, list(stack.parts)
            watch = Watch(module, parts)
            expect(not whole.changed(module), "it was changed while it was read")
        expect(not any(GLOBAL_HOOKS), "hooks for all modules are registered (torch.nn.modules.module)")
        expect_untouched(parts, _names(module))
        own = [name for name in overridden(module) if name != "forward"]  # who replaced that one calls ours, or does not
        expect(not own, f"it has methods of its own: {', '.join(own)}")
        stack.config(stack.causal)  # raises when its parts do not fit together
        place = _device.engine_device(stack.device)
        kept = {
            causal: engine
            for causal, engine in engines.items()
            if engine.config == stack.config(causal) and engine.device == place
        }
        if before is None or not before.has_weights_of(watch, stack):
            for engine in kept.values():
                engine.refresh(stack.tensors)
        return _View(watch, stack, "", kept)

    def _make_engine(self, view: _View, causal: bool) -> Engine:
        with self._lock:
            engine = view.engines.get(causal)
            if engine is None:
                assert view.stack is not None
                options = {**self._engine_options, "device": _device.engine_device(view.device)}
                try:
                    engine = Engine(view.stack.config(causal), view.stack.tensors, options)
                except (CallerError, EnvironmentError_) as error:
                    raise NotRecognised(f"the library cannot take its weights: {error}") from None
                view.engines[causal] = engine
            return engine


def _known_inside(module: nn.Module) -> str:
    """gnomon.Optimized takes the module itself, gnomon.optimize() those inside as well."""
    for name, inner in module.named_modules():
        if name and adapter_for(inner) is not None:
            return f"; one knows `{name}` inside of it: gnomon.optimize(module), without gnomon.Optimized, takes that"
    return ""


def _names(module: nn.Module) -> Callable[[nn.Module], str]:
    names = {id(part): name for name, part in module.named_modules()}
    return lambda part: f"`{names.get(id(part), type(part).__name__)}`"


_states: "weakref.WeakKeyDictionary[nn.Module, State]" = weakref.WeakKeyDictionary()
_all: "weakref.WeakSet[State]" = weakref.WeakSet()
_making = threading.Lock()


@functools.lru_cache(maxsize=None)
def _follow_optimizers() -> None:
    """Fused optimizers, PyTorch's own and others', write weights without PyTorch's counting it. Before 2.0 there is no such
    hook."""
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook
    except ImportError:
        return
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    if _modes.compiling():  # compiled steps are counted
        return
    with _making:
        states = list(_all)
    parameters = {id(p) for group in optimizer.param_groups for p in group["params"]}
    for state in states:
        state.stepped(parameters)


def state_of(module: nn.Module) -> Optional[State]:
    return _states.get(module)


def adopt(module: nn.Module, options: Optional[Mapping[str, Any]] = None) -> State:
    """The module's state, made when there is none (with the options of its class) or when options are given."""
    with _making:
        state = _states.get(module)
        if state is None or options is not None:
            _follow_optimizers()
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
