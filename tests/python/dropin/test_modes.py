"""What PyTorch may be doing around a call (autocast, tracing, transforms, modes), and inputs without plain memory."""

import copy
import warnings

import pytest
import torch
from torch import nn

import gnomon
from dropin_support import (
    BY_NAME,
    D,
    FEW,
    check,
    check_falls_back,
    encoder,
    entry,
    fast,
    reasons,
)


class Seen(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


def under_autocast(module, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return module(x)


def under_dispatch_mode(module, x):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        return module(x)


def under_function_mode(module, x):
    from torch.overrides import TorchFunctionMode

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with Mode():
        return module(x)


def traced(module, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.jit.trace(module, (x,), check_trace=False)
    assert "layer_norm" in str(program.inlined_graph), "the trace holds none of the module's operations"
    return program(x)


def vmapped(module, x):
    vmap = getattr(getattr(torch, "func", None), "vmap", None)
    if vmap is None:
        vmap = pytest.importorskip("functorch").vmap
    return vmap(lambda row: module(row[None])[0])(x)


def vmapped_by_torch(module, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        vmap = torch.vmap if hasattr(torch, "vmap") else torch._vmap_internals.vmap
        return vmap(lambda row: module(row.unsqueeze(0)).squeeze(0))(x)


def forward_mode(module, x):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        return forward_ad.unpack_dual(module(forward_ad.make_dual(x, torch.ones_like(x)))).primal


MODES = {
    "autocast": (under_autocast, "autocast"),
    "dispatch mode": (under_dispatch_mode, "TorchDispatchMode"),
    "function mode": (under_function_mode, "TorchFunctionMode"),
    "jit trace": (traced, "tracing"),
    "vmap": (vmapped, "functorch"),
    "torch.vmap": (vmapped_by_torch, "functorch|no memory of its own"),
    "forward mode": (forward_mode, "forward-mode"),
    "subclass": (lambda m, x: m(x.as_subclass(Seen)), "Seen"),
    "negated view": (lambda m, x: m(torch.imag(torch.complex(x, -x).conj())), "negated view"),
}


@pytest.mark.parametrize("mode", MODES)
def test_what_a_foreign_function_cannot_take_part_in(mode):
    run, word = MODES[mode]
    module, x = fast(FEW[0]), torch.randn(2, 6, D)
    check(FEW[0], module, x)
    plain = gnomon.restore(copy.deepcopy(module))
    with torch.no_grad():
        actual, expected = run(module, x), run(plain, x)
    assert torch.equal(torch.as_tensor(actual), torch.as_tensor(expected))
    assert any(part in reasons(module)[-1] for part in word.split("|")) and entry(module)["answered"] == 1
    check(FEW[0], module, x)


def test_a_module_that_has_no_weights_yet():
    """Lazy parameters have neither memory nor a shape before the first call, which makes them."""
    module = encoder()
    module.layers[0].linear1 = nn.LazyLinear(64)
    gnomon.optimize(module.eval(), effort="estimate")
    x = torch.randn(2, 6, D)
    with torch.enable_grad():  # off PyTorch's own fast path, which cannot take them either
        first = module(x).detach()
    with torch.inference_mode():
        assert torch.allclose(module(x), first, atol=1e-5)
    assert len(reasons(module)) == 1 and entry(module)["answered"] == 1


def test_a_module_on_another_device_answers_for_itself():
    """C22: nothing is guessed about devices that no backend serves; a mismatch is PyTorch's own error, which names both."""
    family = BY_NAME["encoder"]
    module = fast(family).to("meta")
    with torch.no_grad():
        try:
            assert module(torch.randn(2, 6, D, device="meta")).device.type == "meta"
        except (RuntimeError, NotImplementedError):
            pass  # PyTorch 1.13 has no such kernel
    assert "tensors are on meta" in reasons(module)[0]
    module = fast(family)
    with torch.no_grad(), pytest.raises((RuntimeError, NotImplementedError)):
        module(torch.randn(2, 6, D, device="meta"))
    assert "the input is on meta, the weights are on cpu" in reasons(module)[0]


def test_unbatched_and_nested_inputs_are_the_encoders_own():
    family = BY_NAME["encoder"]
    module = fast(family)
    check_falls_back(family, module, torch.randn(6, D), reason="2 axes")
    make = getattr(getattr(torch, "nested", None), "nested_tensor", None) or torch.nested_tensor
    with torch.no_grad():
        try:
            module(make([torch.randn(4, D), torch.randn(6, D)]))
        except (RuntimeError, ValueError, AssertionError):
            pass  # the encoder's own error
    assert "nested tensor" in reasons(module)[-1] and entry(module)["answered"] == 0


@pytest.mark.parametrize(
    "x", [torch.randn(2, 6, D).to_sparse(), torch.randn(2, 6, D, device="meta")], ids=["sparse", "meta"]
)
def test_inputs_without_plain_memory(x):
    module = fast(FEW[0])
    with torch.no_grad():
        try:
            y = module(x)
            assert y.device == x.device
        except (RuntimeError, NotImplementedError):
            pass  # the module's own error
    assert reasons(module) and entry(module)["answered"] == 0
