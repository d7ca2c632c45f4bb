"""The drop-in on CUDA tensors: the caller's device and stream, captures, weights that change. Skipped where PyTorch finds no device."""

import concurrent.futures
import copy
import ctypes

import pytest
import torch

import gnomon
from dropin_support import (
    D,
    QUICK,
    assert_in_contract,
    assert_in_contract_but_for_its_rounding,
    encoder,
    entry,
    reasons,
    reference,
)

on_two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs a second CUDA device")
on_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no CUDA device")


def optimized(module: torch.nn.Module, device="cuda:0", **options) -> torch.nn.Module:
    return gnomon.optimize(module.to(device), **{**QUICK, **options})


def expected(module: torch.nn.Module, *args) -> torch.Tensor:
    """The module's own answer in fp32 on the CPU."""
    plain = gnomon.restore(copy.deepcopy(module)).cpu()
    with torch.enable_grad():
        return plain(*[argument.cpu() for argument in args]).detach()


def answered(module: torch.nn.Module, *args) -> torch.Tensor:
    before = entry(module)["answered"]
    with torch.inference_mode():
        out = module(*args)
    assert entry(module)["answered"] == before + 1, reasons(module)
    return out


@on_device
def test_the_answer_its_device_and_its_dtype():
    module, x = optimized(reference()), torch.randn(3, 17, D, device="cuda")
    valid = torch.ones(3, 17, dtype=torch.bool, device="cuda")
    valid[1, 9:] = False
    assert_in_contract(answered(module, x, valid).cpu(), expected(module, x, valid))
    assert_in_contract(answered(module, x).cpu(), expected(module, x))
    half = answered(module, x.half())
    assert half.dtype is torch.float16 and half.device == x.device
    assert_in_contract_but_for_its_rounding(half.cpu(), expected(module, x.half().float()))


@on_device
def test_weights_that_change_on_the_device():
    module, x = optimized(encoder()), torch.randn(2, 9, D, device="cuda")
    assert_in_contract(answered(module, x).cpu(), expected(module, x))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.7)
    assert_in_contract(answered(module, x).cpu(), expected(module, x))
    module.cpu()
    assert_in_contract(answered(module, x.cpu()), expected(module, x))


@on_device
def test_work_goes_on_the_current_stream():
    """C21: what was put on the stream before is seen, although nothing waits for it."""
    module = optimized(reference())
    x = torch.randn(64, 17, D, device="cuda")
    answered(module, x)
    torch.cuda.synchronize()
    stream, slow = torch.cuda.Stream(), torch.randn(4096, 4096, device="cuda")
    with torch.cuda.stream(stream):
        for _ in range(20):
            slow = slow @ slow * 1e-3
        late = torch.randn(64, 17, D, device="cuda")
        out = answered(module, late)
    stream.synchronize()
    assert_in_contract(out.cpu(), expected(module, late))


@on_device
def test_a_planned_call_joins_a_capture():
    """C21."""
    module, x = optimized(reference()), torch.randn(4, 17, D, device="cuda")
    answered(module, x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.inference_mode(), torch.cuda.graph(graph):
        out = module(x)
    x.copy_(torch.randn(4, 17, D))
    graph.replay()
    torch.cuda.synchronize()
    assert_in_contract(out.cpu(), expected(module, x))


@on_device
def test_an_unplanned_call_in_a_capture_is_refused_at_once():
    """C21."""
    module, x = optimized(reference()), torch.randn(4, 17, D, device="cuda")
    answered(module, x)
    other = torch.randn(5, 19, D, device="cuda")
    torch.cuda.synchronize()
    with torch.inference_mode(), pytest.raises(gnomon.CallerError, match="captured"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        module(other)
    assert_in_contract(answered(module, other).cpu(), expected(module, other))


@on_device
def test_a_hundred_alternations_of_addresses():
    """C20."""
    module = optimized(reference())
    inputs = [torch.randn(4, 17, D, device="cuda") for _ in range(3)]
    wanted = [expected(module, x) for x in inputs]
    for turn in range(100):
        assert_in_contract(answered(module, inputs[turn % 3]).cpu(), wanted[turn % 3])


@on_device
def test_an_input_beyond_the_range_is_answered_in_fp32():
    """C12."""
    module, x = optimized(reference(), effort="measure", budget=2), torch.randn(16, 17, D, device="cuda")
    for scale in (1, 10, 100, 3e4):
        assert_in_contract(answered(module, x * scale).cpu(), expected(module, x * scale))


@on_two_devices
def test_the_second_device_while_the_first_is_current():
    """C22."""
    module, x = optimized(reference(), device="cuda:1"), torch.randn(2, 9, D, device="cuda:1")
    torch.cuda.set_device(0)
    out = answered(module, x)
    assert out.device == x.device and torch.cuda.current_device() == 0
    assert_in_contract(out.cpu(), expected(module, x))


@on_two_devices
def test_a_module_and_an_input_on_two_devices_are_refused_naming_both():
    """C22."""
    module, x = optimized(reference(), device="cuda:1"), torch.randn(2, 9, D, device="cuda:0")
    with torch.inference_mode(), pytest.raises(RuntimeError, match="(?s)(cuda:0.*cuda:1|cuda:1.*cuda:0)"):
        module(x)
    assert_in_contract(answered(module, x.to("cuda:1")).cpu(), expected(module, x))


@on_two_devices
def test_both_devices_at_once_and_a_module_that_moves():
    """C22: two copies of a module, each on a device of its own, called from a thread each; then one moves to the other's device."""
    modules = [optimized(reference(), device=f"cuda:{i}") for i in range(2)]
    inputs = [torch.randn(3, 17, D, device=f"cuda:{i}") for i in range(2)]
    wanted = [expected(module, x) for module, x in zip(modules, inputs)]

    def calls(i: int) -> "list[torch.Tensor]":
        return [answered(modules[i], inputs[i]).cpu() for _ in range(50)]

    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for outs, want in zip(threads.map(calls, range(2)), wanted):
            for out in outs:
                assert_in_contract(out, want)
    modules[0].to("cuda:1")
    assert_in_contract(answered(modules[0], inputs[0].to("cuda:1")).cpu(), wanted[0])


def test_devices_that_no_backend_serves_fall_back():
    with pytest.raises(gnomon._errors.NotRecognised, match="on meta"):
        gnomon._device.engine_device(torch.device("meta"))
    assert gnomon._device.engine_device(torch.device("cuda", 1)) == "cuda:1"


def test_a_streams_whole_address_reaches_the_library(monkeypatch):
    """The library's function has no argument types, and ctypes makes a C int of a number then. Needs no device."""
    module, x, seen = gnomon.optimize(reference(), **QUICK), torch.randn(2, 5, D), []
    answered(module, x)
    (engine,) = gnomon._state.state_of(module).engines
    take = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)(lambda *arguments: seen.append(arguments[4]) or 0)
    untyped = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.cast(take, ctypes.c_void_p).value)
    stream = 0x55D0A8C01230
    with monkeypatch.context() as patch:
        patch.setattr(gnomon._device, "_stream_of", lambda index: stream)
        patch.setattr(engine, "_has_streams", True)
        patch.setattr(engine._library, "forward", untyped)
        answered(module, x)
    assert seen == [stream]
