"""Has anything of a module changed that its answer depends on? Asked on every call, so it is written for speed.

One look in C says so where it can (`_glance.py`). Elsewhere everything is a comparison of whole lists in C, several times faster
than a loop in Python. Seen are: another tensor in place of a parameter or buffer, an in-place change (`_version`), other storage or
strides (the aliases keep the old storage alive, so that no new one can take its address), another submodule, any attribute of any
module, hooks, classes and their methods. Not seen is what PyTorch does not count either: `p.data.add_(1)`; nor `p.data` over the same memory with
another dtype of the same width or with more axes.
"""

from __future__ import annotations

import operator
import types
from itertools import chain
from typing import Any, Dict, List, Sequence

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.modules import module as torch_module
from torch.utils.hooks import RemovableHandle

from ._errors import expect
from ._glance import ATTRIBUTES, TENSORS, glance


def _is_call_hook(name: str) -> bool:
    return name.endswith("_hooks") and ("_forward_" in name or "_backward_" in name)


HOOKS = [name for name in vars(nn.Module()) if _is_call_hook(name)]
GLOBAL_HOOKS = [
    hooks for name, hooks in vars(torch_module).items() if name.startswith("_global_") and _is_call_hook(name)
]
_version = operator.attrgetter("_version")
_requires_grad = operator.attrgetter("requires_grad")
# PyTorch's own: the one class whose forward is in parts, and the way to every forward.
_METHODS = {nn.TransformerEncoderLayer: ("_sa_block", "_ff_block"), nn.Module: ("__call__", "_call_impl")}
_FUNCTIONS = ("linear", "layer_norm", "gelu", "relu", "multi_head_attention_forward", "scaled_dot_product_attention")
FUNCTIONS = {name: getattr(F, name) for name in _FUNCTIONS if hasattr(F, name)}


def _methods_of(kind: type) -> List[str]:
    """The methods that an answer may go through, if only by forward()."""
    if kind.__module__.startswith("torch.nn."):
        return ["forward", *_METHODS.get(kind, ())]
    own = [k for k in kind.__mro__ if k.__module__ == kind.__module__]  # a base of another file may have a hundred
    names = [n for k in own for n, v in vars(k).items() if isinstance(v, types.FunctionType) and not n.startswith("__")]
    return list(dict.fromkeys(["forward", *names]))


def hooks_of(module: nn.Module) -> List[Dict[Any, Any]]:
    return [vars(module)[name] for name in HOOKS if name in vars(module)]


class Watch:
    """`parts` are the modules whose own code does not run while the library answers for `root`."""

    is_quick = False  # takes a microsecond

    def __init__(self, root: nn.Module, parts: Sequence[nn.Module]):
        modules = [root, *parts]
        self._modules = list(modules[1:])
        own = [kind for kind in type(root).__mro__ if "forward" in vars(kind)]  # the last word is Gnomon's, the rest is not
        classes = dict.fromkeys([*map(type, self._modules), *own, *_METHODS])
        methods: List[Any] = [(kind, name) for kind in classes for name in _methods_of(kind)]
        methods += [(F, name) for name in FUNCTIONS]
        self._owners, self._methods = [owner for owner, _ in methods], [name for _, name in methods]
        self._dicts = [vars(part) for part in parts]
        self._containers = [m._modules for m in modules if m._modules]
        self._holders = [h for m in modules for h in (m._parameters, m._buffers) if h]
        self._hooks = [*chain.from_iterable(map(hooks_of, parts)), *GLOBAL_HOOKS]
        self._tensors = [t for held in self._holders for t in held.values() if t is not None]
        expect(
            not any(t.is_inference() for t in self._tensors),
            "parameters were made in inference mode, where PyTorch does not count changes: make the module outside of it",
        )
        watched = [vars(root), *self._dicts, *self._containers, *self._holders, *self._hooks, vars(F)]
        self._glance = glance(watched, classes, self._modules, self._tensors)  # first: what changes beside the rest is seen
        self.is_quick = self._glance is not None and self._glance.is_whole
        self._types = list(map(type, self._modules))
        self._code = list(map(getattr, self._owners, self._methods))
        # dict equality looks at identities first, so it is as cheap as it is thorough.
        self._copies = [dict(d) for d in self._dicts]
        self._own = _OwnAttributes(root)
        self._children = [dict(c) for c in self._containers]
        self._held = [dict(h) for h in self._holders]
        held_now = [t for held in self._held for t in held.values() if t is not None]
        expect(
            len(held_now) == len(self._tensors) and all(map(operator.is_, held_now, self._tensors)),
            "its parameters were replaced while they were read; the next call reads them again",
        )
        # Tensors are compared by identity first; another one of several elements is an error, and so a change. One of a
        # single element could pass for equal.
        self._single = [(h, n, t) for h in self._holders for n, t in h.items() if t is not None and t.numel() < 2]
        self._versions = list(map(_version, self._tensors))
        self._aliases = [t.detach() for t in self._tensors]
        self._addresses = list(map(torch.Tensor.data_ptr, self._tensors))
        # A tensor that stays contiguous at its address is the same: a transposed or cut one in its place is not contiguous,
        # or another of the module's tensors is not.
        self._matrices = [t for t in self._tensors if t.dim() > 1 and t.is_contiguous()]
        self._others = [(t, a) for t, a in zip(self._tensors, self._aliases) if not t.is_contiguous()]
        self._had_hooks = any(self._hooks)
        self._handles = RemovableHandle.next_id

    def changed(self, root: nn.Module) -> bool:
        try:
            return not (self.is_quick and self._glance.look() == 0) and not self._as_before(root)
        except Exception:  # attributes that cannot be compared, a tensor that became something else
            return True

    def _as_before(self, root: nn.Module) -> bool:
        if RemovableHandle.next_id != self._handles:
            if not self._same_hook_holders():
                return False
            self._handles = RemovableHandle.next_id
        if self._glance is None:
            return self._same_attributes(root) and self._same_contents()
        found = self._glance.look()
        if found & ATTRIBUTES:
            changes = self._glance.changes()
            if not self._same_attributes(root):
                return False
            self._glance.settle(changes)
        return not found & TENSORS or self._same_contents()

    def _same_attributes(self, root: nn.Module) -> bool:
        return (
            self._dicts == self._copies
            and self._own.as_before(vars(root))
            and any(self._hooks) == self._had_hooks
            and list(map(type, self._modules)) == self._types
            and list(map(getattr, self._owners, self._methods)) == self._code
            and self._containers == self._children
            and self._holders == self._held
            and (not self._single or all(holder[name] is tensor for holder, name, tensor in self._single))
        )

    def _same_contents(self) -> bool:
        return (
            list(map(_version, self._tensors)) == self._versions
            and list(map(torch.Tensor.data_ptr, self._tensors)) == self._addresses
            and all(map(torch.Tensor.is_contiguous, self._matrices))
            and (not self._others or all(t.is_set_to(alias) for t, alias in self._others))
        )

    def same_tensors(self, newer: "Watch") -> bool:
        """Whether parameters and buffers were the same, with the same contents, when `newer` was made."""
        pairs = list(zip(self._aliases, newer._aliases))
        return (
            len(self._tensors) == len(newer._tensors)
            and all(map(operator.is_, self._tensors, newer._tensors))
            and self._versions == newer._versions
            and self._addresses == newer._addresses  # share_memory() moves a storage, and so all that is set to it
            and all(before.dtype is now.dtype and before.is_set_to(now) for before, now in pairs)
        )

    def holds_any(self, ids: "set[int]") -> bool:
        return not ids.isdisjoint(map(id, self._tensors))

    def _same_hook_holders(self) -> bool:
        """An empty hook dictionary equals another: who replaces one and then fills it is seen by the handle's number."""
        now = [*chain.from_iterable(map(hooks_of, self._modules)), *GLOBAL_HOOKS]
        return len(now) == len(self._hooks) and all(map(operator.is_, now, self._hooks))

    def wants_gradients(self) -> bool:
        return any(map(_requires_grad, self._tensors))


class AlwaysChanged(Watch):
    """For a module that cannot be watched."""

    def __init__(self) -> None:
        pass

    def changed(self, root: nn.Module) -> bool:
        return True


class _OwnAttributes:
    """The root's attributes, without those that lead back to it, and without the dictionary that holds them: a watch must
    not keep its module alive."""

    def __init__(self, root: nn.Module):
        own = vars(root)
        self._size = len(own)
        names = [n for n, v in own.items() if v is not root and getattr(v, "__self__", None) is not root]
        self._values_of = operator.itemgetter(*names)
        self._values = self._values_of(own)

    def as_before(self, own: Dict[str, Any]) -> bool:
        return len(own) == self._size and self._values_of(own) == self._values
