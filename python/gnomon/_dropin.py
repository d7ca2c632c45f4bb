"""The drop-in itself: a class whose forward is Gnomon's, and what puts it on a module and takes it off again."""

from __future__ import annotations

import copy
import copyreg
import functools
import threading
import types
import weakref
from typing import Any, Callable, Dict, List, Optional, TypeVar

import torch
from torch import nn

from . import _masks, _modes
from ._adapters import Request, adapter_for, known
from ._adapters._protocol import PLAIN_TENSORS
from ._errors import CallerError, EnvironmentError_, GnomonError, NotRecognised
from ._options import engine_options
from ._state import adopt, drop, log, state_of

M = TypeVar("M", bound=nn.Module)


def _run(module: nn.Module, plain: Callable[..., Any], args: Any, kwargs: Any, again: bool = False) -> Any:
    """Gnomon's answer, or the module's own where ours could be another one: that of `plain`, which takes the module first.
    `again`: what was launched for these arguments is of weights that had changed."""
    if _modes.compiling():
        return plain(module, *args, **kwargs)
    state = state_of(module)
    if state is None:
        if "_is_replica" in vars(module):
            _say_replicas(type(module).__name__)
            return plain(module, *args, **kwargs)
        state = adopt(module)
    out = None if _wanted.out is None else _take_out(module)
    request = None
    try:
        request = state.request(module, args, kwargs, may_be_thrown_away=out is None and not again)
    except NotRecognised as reason:
        state.fell_back(str(reason))
    if request is None:  # outside of the except: an error of the module's own must not look like ours
        return _into(out, plain(module, *args, **kwargs))
    if out is not None:
        if request.finish is not None:
            raise CallerError(f"out: {type(module).__name__} answers with more than a tensor")
        _check_out(request.x, out)
    try:
        answer = state.answer(request, out)
    except GnomonError as error:
        outdated = _is_outdated(request, module)
        if not outdated and (out is not None or not isinstance(error, EnvironmentError_)):  # out may be half written
            raise
        if not outdated:
            state.fell_back(str(error))
    else:
        outdated = _is_outdated(request, module)
        if not outdated:
            state.answered += 1
            if out is not None:
                _count_change(out)
            return answer
    return _run(module, plain, args, kwargs, again=True) if outdated else plain(module, *args, **kwargs)


@functools.lru_cache(maxsize=None)
def _say_replicas(name: str) -> None:
    log.warning("%s: replicas of nn.DataParallel run its own forward: they are made anew for every call", name)


def _is_outdated(request: Request, module: nn.Module) -> bool:
    """Was it launched for the module as it was before?"""
    return request.unwatched_by is not None and request.unwatched_by.changed(module)


class Optimized:
    """Put it before your module's class: `class Fast(gnomon.Optimized, MyTransformer): pass`.

    Only forward() changes: no parameter, buffer or submodule is added, so state_dict() is the same to the byte. Options
    come from a class attribute, `gnomon_options = {"budget": 2}`.
    """

    _gnomon_transparent = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        at = cls.__mro__.index(Optimized)
        before, behind = cls.__mro__[1:at], cls.__mro__[at + 1 :]
        hiding = [kind.__name__ for kind in before if "forward" in vars(kind)]
        if hiding:
            raise CallerError(f"{cls.__name__}: put gnomon.Optimized before {hiding[0]}, whose forward() hides it")
        # A forward() of its own may go on to ours through super(), but not where there is none to go on to from there.
        if "forward" in vars(cls) and not any("forward" in vars(kind) for kind in behind if kind is not nn.Module):
            raise CallerError(
                f"{cls.__name__}: its own forward() hides gnomon.Optimized's; leave gnomon.Optimized to a class over it: "
                f"class Fast{cls.__name__}(gnomon.Optimized, {cls.__name__}): pass"
            )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return _run(self, _forward_behind_optimized, args, kwargs)  # type: ignore[arg-type]


def _forward_behind_optimized(module: Any, *args: Any, **kwargs: Any) -> Any:
    return super(Optimized, module).forward(*args, **kwargs)  # type: ignore[misc]


class _Swapped:
    """Base of the classes that gnomon.optimize() makes. Such a module pickles as its plain class, so that a saved model
    loads where there is no Gnomon; a deep copy is optimized as well, with plans of its own."""

    _gnomon_transparent = True
    _gnomon_plain: type

    def __reduce_ex__(self, protocol: Any) -> Any:
        made = super().__reduce_ex__(protocol)
        if isinstance(made, str) or not _is_as_made(self):
            return made
        kind, plain = type(self), self._gnomon_plain
        arguments = tuple(plain if argument is kind else argument for argument in made[1])
        if made[0] is copyreg.__newobj__ and len(arguments) == 1:  # type: ignore[attr-defined]
            # pickle refuses __newobj__ for another class than the object's; this makes the same object.
            return (copyreg._reconstructor, (plain, object, None), *made[2:])  # type: ignore[attr-defined]
        return (made[0], arguments, *made[2:])

    def __deepcopy__(self: Any, memo: Dict[int, Any]) -> Any:
        own = getattr(super(), "__deepcopy__", None)
        if own is not None:
            twin = own(memo)
        else:
            make, arguments, attributes = self.__reduce_ex__(4)[:3]
            twin = memo[id(self)] = make(*arguments)
            twin.__setstate__(copy.deepcopy(attributes, memo))
        _swap(twin)
        state = state_of(self)
        adopt(twin, {} if state is None else state.options)
        return twin


def _is_as_made(module: _Swapped) -> bool:
    """False when others derived a class from the made one, and gave the module that."""
    return "_gnomon_plain" in vars(type(module))


# By the plain class's id, which the made class keeps alive: a made class goes with the last module of it.
_classes: "weakref.WeakValueDictionary[int, type]" = weakref.WeakValueDictionary()


def _swap(module: nn.Module) -> None:
    """Gives the module a class that is its own but for forward(): special methods and hooks go on working, and nothing
    is added to the module itself."""
    plain = type(module)
    if issubclass(plain, (_Swapped, Optimized)):
        return
    made = _classes.get(id(plain))
    if made is None:
        names = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, "__doc__": plain.__doc__}
        body = {**names, "_gnomon_plain": plain, "_gnomon_transparent": True, "forward": _forward_over(plain)}
        made = _classes[id(plain)] = types.new_class(
            plain.__name__, (_Swapped, plain), {}, lambda space: space.update(body)
        )
    module.__class__ = made


def _forward_over(plain: type) -> Callable[..., Any]:
    @functools.wraps(plain.forward)  # type: ignore[attr-defined]  # its signature is read by some frameworks
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return _run(self, plain.forward, args, kwargs)  # type: ignore[attr-defined]

    return forward


def _targets(module: nn.Module) -> List[nn.Module]:
    """The module itself when an adapter knows its family, else the outermost ones inside that are known."""
    if adapter_for(module) is not None:
        return [module]
    found = [target for child in module.children() for target in _targets(child)]
    return list(dict.fromkeys(found))


def optimize(module: M, **options: Any) -> M:
    """Gives the module, or the modules inside that Gnomon knows, Gnomon's forward pass. In place; returns the module.

    options: those of the library (`budget`, `effort`, `plan_dir`, `fp32_only`, `threads`, `memory_limit`, `force`, ...;
    docs/pytorch.md), and `padded_rows`: "computed" (default) or "any", when nobody reads the answers at padded tokens.
    Calling it again replaces the options and forgets plans held in memory.

    Raises CallerError for an unknown option, or when there is nothing inside that any adapter knows; EnvironmentError_ when
    libgnomon.so is missing or of another version.
    """
    if not isinstance(module, nn.Module):
        raise CallerError(f"optimize: expected a torch.nn.Module, got a {type(module).__name__}")
    targets = [module] if isinstance(module, (Optimized, _Swapped)) else _targets(module)
    if not targets:
        raise CallerError(
            f"optimize: no adapter knows {type(module).__name__} or a module inside of it; there are adapters for: "
            f"{known()}; write one with gnomon.register_adapter"
        )
    engine_options(options)  # refused before any module is touched
    for target in targets:
        adopt(target, options)
        _swap(target)
    return module


def restore(module: M) -> M:
    """Takes Gnomon off the module and off all modules inside. Returns the module.

    Raises CallerError for a class that has gnomon.Optimized among its bases: use the plain class there.
    Raises CallerError as well where the module was given a class derived from the optimized one, as by a parametrization.
    """
    found = [m for m in module.modules() if isinstance(m, _Swapped)]
    if isinstance(module, Optimized) and not found:
        raise CallerError(
            f"restore: {type(module).__name__} is optimized by its class (gnomon.Optimized is a base of it)"
        )
    for swapped in found:
        if not _is_as_made(swapped):
            kind = type(swapped)
            raise CallerError(f"restore: the class of a {kind.__bases__[0].__name__} is {kind.__name__} since: undo that first")
    for swapped in found:
        swapped.__class__ = swapped._gnomon_plain
        drop(swapped)
    return module


def refresh(module: nn.Module) -> None:
    """After a change that PyTorch does not count (`p.data.add_(1)`, memory written by other code): the next call of the
    module, and of those inside, reads every weight and mask again. All other changes are seen without it."""
    _masks.forget()
    for inner in module.modules():
        state = state_of(inner)
        if state is not None:
            state.refresh()


def forward(module: nn.Module, *args: Any, out: Optional[torch.Tensor] = None, **kwargs: Any) -> Any:
    """module(*args, **kwargs) with the answer in `out`, which may be the input itself. Returns `out`.

    out: the input's shape, dtype and device, any strides whose elements do not overlap, wanting no gradient. Without it the
    call is the module's. Raises CallerError when `out` is something else or overlaps the input in part, when the module does
    not answer with a tensor, and when it is not optimized; EnvironmentError_ when memory or a device fails, because `out` may
    be half written then.
    """
    if not isinstance(module, (Optimized, _Swapped)):
        raise CallerError(f"forward: {type(module).__name__} is not optimized; call gnomon.optimize(module) first")
    if out is None:
        return module(*args, **kwargs)
    _wanted.module, _wanted.out = module, out
    try:
        answer = module(*args, **kwargs)
    finally:
        _wanted.module = _wanted.out = None
    return out if answer is out else _into(out, answer)  # a hook of the module made another one of it


class _Wanted(threading.local):
    """`out` on its way through PyTorch's __call__, so that hooks of the module fire as always."""

    module: Optional[nn.Module] = None
    out: Optional[torch.Tensor] = None


_wanted = _Wanted()


def _take_out(module: nn.Module) -> Optional[torch.Tensor]:
    if _wanted.module is not module:
        return None
    out, _wanted.module, _wanted.out = _wanted.out, None, None
    return out


def _check_out(x: Any, out: torch.Tensor) -> None:
    wanted = f"expected out of shape {list(x.shape)}, {str(x.dtype)[6:]}, on {x.device}, wanting no gradient"
    if type(out) not in PLAIN_TENSORS or out.requires_grad:
        raise CallerError(f"{wanted}; got a {type(out).__name__}{' that wants one' if out.requires_grad else ''}")
    if (out.shape, out.dtype, out.device) != (x.shape, x.dtype, x.device):
        raise CallerError(f"{wanted}; got {list(out.shape)}, {str(out.dtype)[6:]}, on {out.device}")


def _count_change(out: torch.Tensor) -> None:
    """PyTorch cannot see what the library wrote; an in-place operation on nothing raises the tensor's version."""
    if not out.is_inference():
        out[:0].zero_()


def _into(out: Optional[torch.Tensor], result: Any) -> Any:
    if out is None:
        return result
    if not isinstance(result, torch.Tensor):
        raise CallerError(f"out: the module answers with a {type(result).__name__}, not a tensor")
    _check_out(result, out)
    return out.copy_(result)
