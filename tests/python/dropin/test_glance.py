"""The look in C, by which an unchanged module costs microseconds: whatever happens, it sees it, or does not claim to."""

import ctypes
import gc
import sys
import types

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import gnomon
from dropin_support import D, FEW, check, fast, reference
from gnomon import _glance
from gnomon._glance import ATTRIBUTES, TENSORS
from gnomon._library import library
from gnomon._weights_watch import Watch

watches_dicts = pytest.mark.skipif(
    _glance._dict_watcher() is None, reason="CPython 3.12 watches dictionaries, 3.13 forgets some stores"
)
reads_tensors = pytest.mark.skipif(_glance._tensor_readers() is None, reason="this PyTorch does not have the functions")


@pytest.fixture(autouse=True)
def no_collection():
    """The end of another test's dictionaries would count as a change."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def watch_of(module: nn.Module) -> Watch:
    return Watch(module, list(module.modules())[1:])


def part(module: nn.Module) -> nn.Module:
    return module.layers[0].fc1


def assign_class(module):
    part(module).__class__ = type("Linear", (nn.Linear,), {})


def patched_class(module, monkeypatch):
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: x)


ATTRIBUTE_CHANGES = {
    "attribute": lambda m, _: setattr(part(m), "note", 1),
    "attribute of the module itself": lambda m, _: setattr(m, "note", 1),
    "attribute that changes": lambda m, _: setattr(part(m), "in_features", D + 1),
    "attribute that goes": lambda m, _: delattr(part(m), "in_features"),
    "attribute by the back door": lambda m, _: vars(part(m)).update(note=1),
    "training": lambda m, _: part(m).train(),
    "parameter": lambda m, _: setattr(part(m), "weight", nn.Parameter(part(m).weight.detach())),
    "parameter by the back door": lambda m, _: part(m)._parameters.pop("bias"),
    "child": lambda m, _: setattr(m.layers[0], "fc1", nn.Identity()),
    "child by the back door": lambda m, _: m.layers[0]._modules.clear(),
    "hook": lambda m, _: part(m).register_forward_hook(lambda *_: None),
    "hook by the back door": lambda m, _: part(m)._forward_hooks.__setitem__(0, lambda *_: None),
    "class": lambda m, _: assign_class(m),
    "method": patched_class,
    "method of a base": lambda m, patch: patch.setattr(nn.Module, "__call__", lambda *_: None),
    "function": lambda m, patch: patch.setattr(F, "linear", lambda *_: None),
}


@watches_dicts
@pytest.mark.parametrize("change", ATTRIBUTE_CHANGES)
def test_a_change_of_attributes_is_seen(change, monkeypatch):
    module = reference()
    watch = watch_of(module)
    assert not watch._glance.look() & ATTRIBUTES
    ATTRIBUTE_CHANGES[change](module, monkeypatch)
    assert watch._glance.look() & ATTRIBUTES


@pytest.mark.skipif(sys.version_info[:2] != (3, 12), reason="of CPython 3.12 it is known")
def test_dictionaries_are_watched():
    assert _glance._dict_watcher() is not None


@watches_dicts
def test_an_interpreter_that_forgets_stores_is_found_out(monkeypatch):
    assert _glance._counts_every_store(_glance._dict_watcher())
    watcher, forgetful = _glance._dict_watcher(), types.SimpleNamespace(gnomon_watch_changes=lambda: 7)
    monkeypatch.setattr(_glance, "library", lambda: types.SimpleNamespace(locked=forgetful))
    assert not _glance._counts_every_store(watcher)


@watches_dicts
def test_what_turned_out_to_be_nothing_is_looked_at_once():
    module = reference()
    watch = watch_of(module)
    module.train().eval()
    assert watch._glance.look() & ATTRIBUTES
    assert not watch.changed(module) and not watch._glance.look() & ATTRIBUTES
    part(module).note = 1
    assert watch.changed(module) and watch.changed(module)
    del part(module).note
    assert not watch.changed(module)


def in_place(weight):
    with torch.no_grad():
        weight[0, 0] += 1


TENSOR_CHANGES = {
    "in place": in_place,
    "other memory": lambda w: setattr(w, "data", w.data.clone()),
    "transposed in its place": lambda w: setattr(w, "data", w.data.t()),
    "cut in its place": lambda w: setattr(w, "data", w.data[: D // 2]),
    "set_": lambda w: w.detach().set_(w.detach().clone()),
    "shared memory": lambda w: w.share_memory_(),
    "swapped": lambda w: torch.utils.swap_tensors(w, nn.Parameter(w.detach().clone())),
    "swapped for its own memory": lambda w: torch.utils.swap_tensors(w, nn.Parameter(w.data)),
}


@reads_tensors
@pytest.mark.parametrize("change", TENSOR_CHANGES)
def test_a_change_of_a_tensor_is_seen(change):
    module = reference()
    weight = module.layers[1].attn.out_proj.weight
    watch = watch_of(module)
    assert not watch._glance.look() & TENSORS
    TENSOR_CHANGES[change](weight)
    assert watch._glance.look() & TENSORS


@watches_dicts
@reads_tensors
def test_nothing_is_compared_in_python_while_nothing_changes(monkeypatch):
    module, x = fast(FEW[0]), torch.randn(2, 6, D)
    check(FEW[0], module, x)
    compared = []
    for name in ("_same_attributes", "_same_contents"):
        monkeypatch.setattr(Watch, name, lambda self, *_, name=name: compared.append(name) or True)
    with torch.inference_mode():
        for _ in range(3):
            module(x)
    assert compared == []


@pytest.mark.parametrize("missing", ["_dict_watcher", "_tensor_readers"])
def test_where_a_half_is_missing_it_is_compared_in_python(missing, monkeypatch):
    monkeypatch.setattr(_glance, missing, lambda: None)
    module, x = fast(FEW[0]), torch.randn(2, 6, D)
    before = check(FEW[0], module, x)
    in_place(part(module).weight)
    after = check(FEW[0], module, x)
    assert not torch.equal(before, after)
    part(module).register_forward_hook(lambda m, args, out: out * 2)
    watch = gnomon._state.state_of(module)._view.watch
    assert watch.changed(module)


class FakeTensor:
    """A tensor as the library meets it, without a PyTorch that has the functions."""

    def __init__(self):
        self.sizes, self.strides = (ctypes.c_int64 * 2)(2, 3), (ctypes.c_int64 * 2)(3, 1)
        self.data, self.version, self.failed = 4096, 5, 0
        self.words = (ctypes.c_void_p * 5)(1, 2, 3, 12345, 12345)  # the implementation stands in the first word after the type
        self.told = {"implementation": 12345, "data": 4096, "version": 5, "layout": (2, 3, 3, 1)}

    def watched(self, **told):
        told = {**self.told, **told}
        self.told_layout = (ctypes.c_int64 * 4)(*told["layout"])
        seen = _glance._Seen(
            ctypes.addressof(self.words), told["implementation"], told["data"], told["version"], 2, self.told_layout
        )
        reader = ctypes.PYFUNCTYPE(ctypes.c_int32, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
        self.functions = [
            ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda _: self.version),
            reader(lambda _, out: self.told_to(out, self.data)),
            reader(lambda _, out: self.told_to(out, ctypes.addressof(self.sizes))),
            reader(lambda _, out: self.told_to(out, ctypes.addressof(self.strides))),
        ]
        size = ctypes.sizeof(self.words)
        readers = _glance._Readers(*[ctypes.cast(f, ctypes.c_void_p) for f in self.functions], size)
        one = _glance._addresses
        return library().locked.gnomon_watch_create(
            True, 1, one([id(self)]), one([id(type(self))]), ctypes.pointer(readers), 1, ctypes.pointer(seen)
        )

    def told_to(self, out, value):
        out[0] = value
        return self.failed


FIELDS = {
    "implementation": lambda f: f.words.__setitem__(3, 54321),
    "data": lambda f: setattr(f, "data", 8192),
    "size": lambda f: f.sizes.__setitem__(1, 4),
    "stride": lambda f: f.strides.__setitem__(0, 4),
    "version": lambda f: setattr(f, "version", 6),
    "failure": lambda f: setattr(f, "failed", 1),
}


@pytest.mark.parametrize("field", FIELDS)
def test_each_field_of_a_tensor_counts(field):
    fake, lib = FakeTensor(), library().locked
    watch = ctypes.c_void_p(fake.watched())
    assert lib.gnomon_watch_look(watch) == 0
    lib.gnomon_watch_count(0, None, None, None)
    assert lib.gnomon_watch_look(watch) == ATTRIBUTES
    lib.gnomon_watch_settle(watch, ctypes.c_uint64(lib.gnomon_watch_changes()))
    assert lib.gnomon_watch_look(watch) == 0
    FIELDS[field](fake)
    assert lib.gnomon_watch_look(watch) == TENSORS
    lib.gnomon_watch_destroy(watch)


NOT_AS_TOLD = {"implementation": 54321, "data": 8192, "version": 4, "layout": (2, 3, 1, 2)}


@pytest.mark.parametrize("field", NOT_AS_TOLD)
def test_tensors_that_are_laid_out_in_another_way_are_not_watched(field):
    assert FakeTensor().watched(**{field: NOT_AS_TOLD[field]}) is None


def test_another_class_of_a_module_is_seen():
    fake, lib = FakeTensor(), library().locked
    watch = ctypes.c_void_p(fake.watched())
    fake.__class__ = type("Other", (FakeTensor,), {})
    assert lib.gnomon_watch_look(watch) == ATTRIBUTES
    lib.gnomon_watch_destroy(watch)
