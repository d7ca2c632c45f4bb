"""The parts of python -m gnomon.bench: what computes its figures and judges its answers."""

import ctypes
import dataclasses

import numpy as np
import pytest
import torch

import contract as contract_on_arrays
import gnomon
from gnomon._bench import contract, overhead, peers, statistics
from gnomon._bench.clock import HostClock
from gnomon._bench.command import ids
from gnomon._bench.peers import by_hand, eager
from gnomon._bench.peers.peer import HAS_SDPA
from gnomon._bench.session import Experience, flops
from gnomon._bench.shared import Shape, StackConfig, load_suite
from gnomon._bench.work import CannotRun, Setting, Work, too_large
from gnomon._state import state_of

TINY = Shape(1, 2, 8, StackConfig(layers=2, d_model=32, n_heads=4, d_ff=64))


def setting(**changes) -> Setting:
    base = Setting(torch.device("cpu"), torch.float32, "none", 0, {"abs": 0.002, "rel": 0.02}, {})
    return dataclasses.replace(base, **changes)


@pytest.mark.parametrize("value", [1.0, 0.001, 1.01, 100.0, float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("truth", [1.0, 0.0, 103.0, float("nan"), float("inf")])
def test_the_contract_is_the_one_on_arrays(value, truth):
    u, r = np.array([0.0, value]), np.array([0.0, truth])
    ours = contract.judge(torch.from_numpy(u), torch.from_numpy(r), 0.002, 0.02)
    theirs = contract_on_arrays.compare(u, r)
    assert ours.worst == pytest.approx(theirs.worst) and ours.out_of_contract == theirs.out_of_contract
    assert ours.elements == 2 and ours.holds == theirs.holds


def test_the_contract_looks_at_every_block(monkeypatch):
    monkeypatch.setattr(contract, "_BLOCK", 7)
    r = torch.zeros(2, 3, 5)
    for bad in range(30):
        u = r.clone()
        u.view(-1)[bad] = 1.0
        assert contract.judge(u, r, 0.002, 0.02).out_of_contract == 1


def test_an_answer_of_another_shape_is_not_judged():
    with pytest.raises(ValueError, match=r"expected an answer of shape \[2, 3\]"):
        contract.judge(torch.zeros(3, 2), torch.zeros(2, 3), 0.002, 0.02)


def test_of_two_looks_the_worse_counts():
    joined = contract.Verdict(0.5, 0, 10).joined(contract.Verdict(1.5, 3, 10))
    assert (joined.worst, joined.out_of_contract, joined.holds) == (1.5, 3, False)


def test_quartiles_and_paired_ratios():
    assert statistics.spread([5.0, 1.0, 3.0, 2.0, 4.0]) == {"low": 2.0, "median": 3.0, "high": 4.0}
    assert statistics.spread([7.0]) == {"low": 7.0, "median": 7.0, "high": 7.0}
    # A slow second round hits both; only the paired ratio is blind to it.
    assert statistics.paired([2.0, 20.0, 2.0], [1.0, 10.0, 1.0]) == [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match="got 2 and 1"):
        statistics.paired([1.0, 2.0], [1.0])
    assert statistics.geometric_mean([2.0, 8.0]) == pytest.approx(4.0)


class Ticking:
    """A clock that a call moves on by the next of `costs`, over and over."""

    def __init__(self, *costs: float):
        self.time, self.calls, self.costs = 0.0, 0, costs

    def now(self) -> float:
        return self.time

    def run(self) -> None:
        self.time += self.costs[self.calls % len(self.costs)]
        self.calls += 1


def test_a_turn_warms_up_and_takes_the_median_of_what_fits():
    ticking = Ticking(1 / 64)  # sums of it are exact
    turn = HostClock(ticking.now).turn(ticking.run, slot=0.1, expected=1 / 64)
    assert turn == {"seconds": 1 / 64, "calls": 6}
    assert ticking.calls == 6 + 1  # one call of warm-up
    uneven = Ticking(0.010, 0.010, 0.030)
    assert HostClock(uneven.now).turn(uneven.run, slot=0.3, expected=0.010)["seconds"] == pytest.approx(0.010)


def test_a_call_longer_than_its_slot_is_made_once_without_warm_up():
    ticking = Ticking(3.0)
    assert HostClock(ticking.now).turn(ticking.run, slot=0.1, expected=3.0) == {"seconds": 3.0, "calls": 1}


@pytest.mark.parametrize("text, numbers", [("1-3,8", [1, 2, 3, 8]), ("5", [5])])
def test_shape_numbers(text, numbers):
    assert ids(text) == numbers


def test_peers_are_chosen_by_pattern_and_the_reference_always_takes_part():
    assert [p.name for p in peers.chosen(["gnomon"])] == ["reference", "gnomon"]
    assert len(peers.chosen(["compile-*"])) == 1 + 9
    assert peers.chosen(["*"]) == peers.ALL
    with pytest.raises(ValueError, match="no peer is called 'nobody'"):
        peers.chosen(["gnomon", "nobody"])


def test_what_this_pytorch_lacks_is_refused_with_a_reason():
    by_name = {p.name: p for p in peers.ALL}
    assert bool(by_name["sdpa"].refuse(setting())) == (not HAS_SDPA)
    assert bool(by_name["compile-default"].refuse(setting())) == (not hasattr(torch, "compile"))
    assert by_name["compile-reduce-overhead"].refuse(setting())
    assert "bfloat16 already" in by_name["reference-half"].refuse(setting(dtype=torch.bfloat16))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("mask", ["none", "all"])
def test_fp32_peers_answer_as_the_reference(causal, mask):
    shape = dataclasses.replace(TINY, config=dataclasses.replace(TINY.config, causal=causal))
    work = Work(shape, setting(mask=mask))
    names = ["reference", "by-hand", "encoder", "reference-all-cores", *(["sdpa"] if HAS_SDPA else [])]
    for peer in peers.ALL:
        if peer.name in names:
            answer = peer.build(work).run()
            assert work.judge(answer).worst < 0.05, peer.name


@pytest.mark.parametrize("slices", [1, 2, 3, 5])
def test_slices_by_hand_change_nothing(slices):
    shape = dataclasses.replace(TINY, batch=5)
    work = Work(shape, setting())
    assert work.judge(by_hand.Pass(work, None, slices).run()).worst < 0.05


def test_pre_norm_stacks_are_pre_norm_in_pytorchs_encoder_too():
    shape = dataclasses.replace(TINY, config=dataclasses.replace(TINY.config, norm="pre"))
    work, by_name = Work(shape, setting()), {peer.name: peer for peer in peers.ALL}
    assert work.judge(by_name["encoder"].build(work).run()).worst < 0.05


def test_by_hand_refuses_what_it_was_not_written_for():
    shape = dataclasses.replace(TINY, config=dataclasses.replace(TINY.config, norm="pre"))
    with pytest.raises(CannotRun, match="post-norm"):
        by_hand.build(Work(shape, setting()))


def test_all_cores_is_left_as_it_was_found():
    before = torch.get_num_threads()
    with eager.all_cores():
        assert torch.get_num_threads() >= before
    assert torch.get_num_threads() == before


def test_only_the_rows_that_can_be_known_are_judged_when_the_scores_do_not_fit(monkeypatch):
    from gnomon._bench import work as module

    whole = Work(TINY, setting())
    monkeypatch.setattr(module, "LEADING_ROWS", 3)
    monkeypatch.setattr(module, "available_memory", lambda device: 0)
    part = Work(TINY, setting())
    assert part.judged_rows == 3 and torch.allclose(part.truth, whole.truth[:, :3], atol=1e-6)
    assert part.judge(whole.truth).holds
    with pytest.raises(CannotRun, match="GiB for the scores"):
        Work(dataclasses.replace(TINY, config=dataclasses.replace(TINY.config, causal=False)), setting())


def test_a_shape_that_does_not_fit_says_what_it_needs():
    _, shapes = load_suite()
    why = too_large(shapes[13], setting())
    assert "need 36.6 GiB" in why and "GiB are free" in why and "the reference would need about 57," in why
    assert too_large(TINY, setting()) is None


def test_the_cost_of_the_next_shape_is_guessed_from_the_last():
    experience = Experience()
    assert experience.expected("sdpa", TINY, 8) is None
    experience.learn("sdpa", TINY, call=0.5, prepare=3.0)
    larger = dataclasses.replace(TINY, batch=20)
    assert flops(larger) == 10 * flops(TINY)
    assert experience.expected("sdpa", larger, 2) == pytest.approx(2.0 + 2 * 5.0)


def test_the_host_alone_is_measured_where_there_is_a_driver(monkeypatch):
    """On a CPU no plan has one; what there is is given back, and the calls between go through the module."""
    module, x, calls = gnomon.optimize(Work(TINY, setting()).module_copy(), effort="estimate"), torch.zeros(2, 8, 32), []
    with torch.inference_mode():
        module(x)
    (engine,) = state_of(module).engines
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    assert overhead._samples_without_driver(engine, TINY, lambda: calls.append(1)) is None and not calls
    given_back, handle = [], engine._library.handle
    begun = {"gnomon_idle_begin": ctypes.c_void_p(7)}
    monkeypatch.setattr(engine._library, "handle", lambda name, *_: begun.get(name) or handle(name, *_))
    monkeypatch.setattr(engine._library.dll, "gnomon_idle_end", lambda handle: given_back.append(handle.value))
    samples = overhead._samples_without_driver(engine, TINY, lambda: calls.append(1))
    assert len(samples) == overhead.REPEATS and len(calls) == overhead.REPEATS * overhead.SHORT_CALLS and given_back == [7]
