"""Calls: whose the output is, what is left alone, threads, forks, hooks, `out`, and what a call costs in Python."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    FEW,
    Family,
    assert_in_contract,
    check,
    entry,
    fast,
    own_answer,
    ragged,
    reasons,
    reference,
)
from gnomon._bench import overhead
from gnomon._library import library
from gnomon._state import state_of

families = pytest.mark.parametrize("family", FAMILIES, ids=str)
ROOT = Path(__file__).resolve().parents[3]


@families
def test_outputs_belong_to_the_caller(family):
    """C19."""
    module = fast(family)
    x1, x2 = torch.randn(2, 5, D), torch.randn(2, 5, D)
    with torch.inference_mode():
        y1 = family.call(module, x1, None)
        kept = y1.clone()
        y2 = family.call(module, x2, None)
        assert torch.equal(y1, kept) and y1.data_ptr() != y2.data_ptr()
        twice = family.call(module, family.call(module, x1, None), None)
    assert_in_contract(twice, own_answer(family, module, own_answer(family, module, x1)))
    del module
    assert torch.equal(y1, kept)


@families
def test_the_answer_is_for_the_tensor_passed(family):
    """C20: new storage, then the same storage with new contents; the mask too."""
    module, x, valid = fast(family), torch.randn(2, 5, D), ragged(2, 5, 1)
    with torch.inference_mode():
        for turn in range(100):
            if turn % 2:
                x = torch.randn(2, 5, D)
                valid = ragged(2, 5, turn)
            else:
                x.normal_()
                valid.copy_(ragged(2, 5, turn))
            actual = family.call(module, x, valid)
            if turn % 10 < 2:
                expected = own_answer(family, module, x.clone(), valid.clone())
                assert_in_contract(actual, expected, f"turn {turn}")
    assert entry(module)["answered"] == 100


@families
def test_planning_leaves_everything_alone(family):
    """C18."""
    module, x, valid = fast(family, effort="measure"), torch.randn(2, 5, D), ragged(2, 5)
    tensors = [x, valid, *module.parameters(), *module.buffers()]
    before = [t.clone() for t in tensors], [t._version for t in tensors], torch.get_rng_state()
    with torch.inference_mode():
        first, second = family.call(module, x, valid), family.call(module, x, valid)
    assert torch.equal(first, second)
    assert all(torch.equal(a, b) for a, b in zip(tensors, before[0]))
    assert [t._version for t in tensors] == before[1] and torch.equal(torch.get_rng_state(), before[2])


def test_out_takes_the_answer_in_any_layout():
    module, x = fast(FEW[0]), torch.randn(2, 5, D)
    wide = torch.zeros(2, 5, 2 * D)
    with torch.inference_mode():
        expected = module(x)
    with torch.no_grad():
        for out in (torch.empty(2, 5, D), wide[..., ::2], torch.empty(5, 2, D).transpose(0, 1)):
            version = out._version
            assert gnomon.forward(module, x, out=out) is out and torch.equal(out, expected)
            assert out._version > version, "PyTorch was not told that the tensor changed"
        assert gnomon.forward(module, x).equal(expected)
    assert not wide[..., 1::2].any(), "written beside the output"


def test_in_place():
    for family in FEW:
        module, x = fast(family), torch.randn(2, 5, D)
        source = x if family is FEW[0] else x.transpose(0, 1).contiguous()
        expected = own_answer(family, module, x)
        with torch.inference_mode():
            assert gnomon.forward(module, source, out=source) is source
        assert_in_contract(source if family is FEW[0] else source.transpose(0, 1), expected)


def test_out_is_filled_by_a_fallback_too():
    module, x, out = fast(FEW[0]), torch.randn(2, 5, D), torch.empty(2, 5, D)
    module.layers[0].register_forward_hook(lambda *_: None)
    with torch.no_grad():
        assert gnomon.forward(module, x, out=out) is out
    assert torch.equal(out, own_answer(FEW[0], module, x)) and reasons(module)


WRONG_OUT = {
    "shape": lambda: torch.empty(2, 5, D + 1),
    "dtype": lambda: torch.empty(2, 5, D, dtype=torch.float16),
    "device": lambda: torch.empty(2, 5, D, device="meta"),
    "gradient": lambda: torch.empty(2, 5, D, requires_grad=True),
    "overlap": lambda: torch.empty(1, 5, D).expand(2, 5, D),
}


@pytest.mark.parametrize("kind", WRONG_OUT)
def test_an_unfit_out_is_refused(kind):
    module = fast(FEW[0])
    with torch.no_grad(), pytest.raises(gnomon.CallerError):
        gnomon.forward(module, torch.randn(2, 5, D), out=WRONG_OUT[kind]())
    assert entry(module)["answered"] == 0


def test_out_that_overlaps_the_input_is_refused():
    module, memory = fast(FEW[0]), torch.randn(3, 5, D)
    with torch.no_grad(), pytest.raises(gnomon.CallerError):
        gnomon.forward(module, memory[:2], out=memory[1:])


def test_out_of_a_module_that_answers_with_more_than_a_tensor_is_refused():
    bert = next(f for f in FAMILIES if f.name == "bert")
    with torch.no_grad(), pytest.raises(gnomon.CallerError, match="more than a tensor"):
        gnomon.forward(fast(bert), torch.randn(2, 5, D), out=torch.empty(2, 5, D))


def test_hooks_on_the_module_itself_fire():
    module, x, seen = fast(FEW[0]), torch.randn(2, 5, D), []
    module.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    module.register_forward_hook(lambda m, args, out: seen.append(out) or out + 1)
    out = torch.empty(2, 5, D)
    with torch.inference_mode():
        y = module(x)
        assert gnomon.forward(module, x, out=out) is out
    assert len(seen) == 2 and torch.equal(y, seen[0] + 1) and torch.equal(out, y)
    assert entry(module)["answered"] == 2


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_the_answer_wants_no_gradient(mode):
    module = fast(FEW[0])
    with mode():
        y = module(torch.randn(2, 5, D))
    assert not y.requires_grad and y.is_inference() == (mode is torch.inference_mode)


def test_frozen_parameters_need_no_mode():
    module = fast(FEW[0]).requires_grad_(False)
    assert not module(torch.randn(2, 5, D)).requires_grad and entry(module)["answered"] == 1


def test_wrong_arguments_are_the_modules_own_error():
    module = fast(FEW[0])
    for call in (lambda: module(), lambda: module(torch.randn(2, 5, D), nonsense=1)):
        with torch.inference_mode(), pytest.raises(TypeError):
            call()


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name != "gpt2"], ids=str)  # made of ids or embeddings
def test_an_input_that_is_no_tensor_is_the_modules_own_error(family):
    module = fast(family)
    with torch.inference_mode(), pytest.raises(Exception) as plain:
        family.call(gnomon.restore(family.make()), Listed([[1.0] * D]))
    with torch.inference_mode(), pytest.raises(type(plain.value)) as ours:
        family.call(module, Listed([[1.0] * D]))
    assert str(ours.value) == str(plain.value) and len(reasons(module)) == 1


class Listed(list):
    """No tensor, but turned as one by the callers of families that put S first."""

    def transpose(self, *_):
        return self


def test_eight_threads_share_a_module_while_its_weights_change():
    family = FEW[0]
    module = fast(family)
    xs = [torch.randn(2, 3 + n, D) for n in range(8)]
    states = [{k: v.clone() for k, v in fast(family, seed).state_dict().items()} for seed in (3, 4)]
    right = []
    for state in states:
        module.load_state_dict(state)
        right.append([own_answer(family, module, x) for x in xs])
    wrong = []

    def work(n: int, which: int) -> None:
        with torch.inference_mode():
            for _ in range(4):
                try:
                    assert_in_contract(module(xs[n]), right[which][n])
                except BaseException as error:  # noqa: BLE001 -- shown in the main thread
                    wrong.append(error)

    for round_ in range(4):
        module.load_state_dict(states[round_ % 2])
        threads = [threading.Thread(target=work, args=(n, round_ % 2)) for n in range(8)]
        [t.start() for t in threads]
        [t.join() for t in threads]
    assert not wrong, wrong[0]
    assert entry(module)["fallbacks"] == []


def test_weights_change_under_running_calls():
    """No answer mixes two generations' memory: a refresh waits for the calls inside."""
    module, x, stop = fast(FEW[0]), torch.randn(8, 30, D), threading.Event()
    expected, problems = own_answer(FEW[0], module, x), []

    def work() -> None:
        with torch.inference_mode():
            while not stop.is_set():
                try:
                    assert_in_contract(module(x), expected)
                except BaseException as error:  # noqa: BLE001 -- shown in the main thread
                    problems.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    for _ in range(30):
        for parameter in module.parameters():
            parameter.data = parameter.data.clone()
    stop.set()
    [t.join() for t in threads]
    assert not problems, problems[0]


class InterruptedOnce(set):
    """What a Ctrl-C that arrives while a call goes in leaves behind."""

    def add(self, call) -> None:
        super().add(call)
        raise KeyboardInterrupt


def test_an_interrupted_call_leaves_nobody_waiting():
    module, x = fast(FEW[0]), torch.randn(2, 5, D)
    check(FEW[0], module, x)
    (engine,) = state_of(module).engines
    engine._inside = InterruptedOnce()
    with torch.no_grad(), pytest.raises(KeyboardInterrupt):
        module(x)
    assert not engine._inside  # or the next refresh would wait for ever
    engine._inside = set()
    module.layers[0].fc1.weight.data = module.layers[0].fc1.weight.data * 2
    check(FEW[0], module, x)


INTERRUPTED = """
import os, signal, sys, threading, time
import torch, gnomon
sys.path[:0] = sys.argv[1:]
from dropin_support import assert_in_contract, encoder

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs are started with it ignored
module = encoder(d=256, ffn=1024)
x = torch.randn(16, 64, 256)
with torch.inference_mode():
    expected = module(x)
    gnomon.optimize(module, effort="exhaustive", budget=100, plan_dir=None)
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    start = time.monotonic()
    try:
        module(x)
        sys.exit("no KeyboardInterrupt was raised")
    except KeyboardInterrupt:
        assert time.monotonic() - start < 50
    assert_in_contract(module(x), expected)
(problem,) = gnomon.explain(module).as_dict()["modules"][0]["problems"]
assert any(note.startswith("cut short by the caller") for note in problem["notes"]), problem["notes"]
"""


def test_ctrl_c_cuts_the_planning_of_a_first_call_short():
    folders = [path for path in sys.path if path.startswith(str(ROOT))]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    command = [sys.executable, "-c", INTERRUPTED, *folders]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_errors_of_a_first_call_are_raised_where_it_was_made():
    module = reference()
    gnomon.optimize(module, effort="stored", plan_dir=None)
    for _ in range(2):
        with torch.no_grad(), pytest.raises(gnomon.CallerError, match="effort=stored, and memory"):
            module(torch.randn(2, 5, D))


def test_an_interrupted_refresh_keeps_what_the_library_reads(monkeypatch):
    module, x = fast(FEW[0]), torch.randn(2, 5, D)
    check(FEW[0], module, x)
    (engine,) = state_of(module).engines
    before, bias = engine._kept[0], module.layers[0].fc1.bias

    def interrupted(weights) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, torch.no_grad(), pytest.raises(KeyboardInterrupt):
        patch.setattr(engine._library.dll, "gnomon_weights_destroy", interrupted)  # right after the refresh
        bias.data = bias.data * 2
        module(x)
    assert engine._kept[0] is before  # the library has these weights or the new ones
    assert engine._kept[1]["layers.0.fc1.bias"].data_ptr() == bias.data_ptr()
    check(FEW[0], module, x)
    assert len(engine._kept) == 1


def start_child(work) -> int:
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException as error:  # noqa: BLE001 -- the parent sees the status
            print(error, flush=True)
            os._exit(1)
    return child


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def in_a_child(work) -> None:
    assert end_of(start_child(work)) == 0


def test_a_forked_child_answers_with_plans_of_its_own():
    family = FEW[0]
    module, x = fast(family), torch.randn(2, 5, D)
    y = check(family, module, x)

    def child() -> None:
        with torch.inference_mode():
            assert_in_contract(module(x), y)
            assert_in_contract(module(x[:1]), y[:1])

    in_a_child(child)
    assert torch.equal(check(family, module, x), y)


@pytest.mark.parametrize("home", ["cold folder", "none at all"])
def test_eight_children_with_one_cold_plan_folder(home, tmp_path):
    """C16 as a user meets it: a server forks its workers, and each plans the same shape at once."""
    torch.manual_seed(0)
    module, x = FEW[0].make(), torch.randn(2, 5, D)
    expected = own_answer(FEW[0], module, x)

    def work() -> None:
        for name in ("HOME", "XDG_CACHE_HOME", "GNOMON_PLAN_DIR"):
            os.environ.pop(name, None)
        folder = {"plan_dir": tmp_path} if home == "cold folder" else {}
        gnomon.optimize(module, effort="measure", budget=0.1, **folder)
        with torch.inference_mode():
            assert_in_contract(module(x), expected)
        assert entry(module)["answered"] == 1

    children = [start_child(work) for _ in range(8)]
    assert [end_of(child) for child in children] == [0] * 8
    assert len(list(tmp_path.glob("*.json"))) == (1 if home == "cold folder" else 0)


def test_a_child_forked_while_other_threads_are_inside():
    module, x, stop = fast(FEW[0]), torch.randn(8, 30, D), threading.Event()
    with torch.inference_mode():
        y = module(x)

    def work() -> None:
        with torch.inference_mode():
            while not stop.is_set():
                module(x)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]

    def child() -> None:
        with torch.inference_mode():
            assert_in_contract(module(x), y)

    try:
        for _ in range(3):
            in_a_child(child)
    finally:
        stop.set()
        [t.join() for t in threads]


def test_overhead_in_python_at_shape_one(monkeypatch):
    """48 parameters. The bench states the figure; here only that nobody puts a loop in Python on the path of a call: the
    best sample, in units of an allocation by PyTorch, because a busy machine slows both."""
    module, x = fast(Family("shape 1", lambda: reference(layers=3, d_model=128, d_ff=512), None)), torch.randn(1, 100, 128)
    with torch.inference_mode():
        module(x)
        monkeypatch.setattr(library(), "forward", overhead._returns_zero())
        call = min(overhead._sample(lambda: module(x), overhead.CALLS) for _ in range(200))
        unit = min(overhead._sample(lambda: torch.empty_like(x), overhead.CALLS) for _ in range(200))
    print(f"{call:.2f} us a call, {unit:.2f} us an allocation")
    assert len(list(module.parameters())) == 48 and call < 40 * unit, (call, unit)
