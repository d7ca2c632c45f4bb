"""Changed weights are used by the next call, however they changed; plans on disk never carry one model's answer to another."""

import copy
import json
import threading

import pytest
import torch
from torch import nn

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    FEW,
    assert_in_contract,
    check,
    check_falls_back,
    entry,
    fast,
    gpt2,
    own_answer,
    reasons,
    reference,
    run_python,
)

families = pytest.mark.parametrize("family", FAMILIES, ids=str)


def other_state(module) -> dict:
    return {k: v + 0.1 * torch.randn_like(v) if v.is_floating_point() else v for k, v in module.state_dict().items()}


def load_assign(module):
    """load_state_dict(assign=True); before PyTorch 2.1 by hand: new parameters in the place of the old."""
    if "assign" in nn.Module.load_state_dict.__code__.co_varnames:
        module.load_state_dict(other_state(module), assign=True)
        return
    for name, value in other_state(module).items():
        holder, _, leaf = name.rpartition(".")
        owner = module.get_submodule(holder)
        if leaf in owner._parameters:
            setattr(owner, leaf, nn.Parameter(value))


def assign_data(module):
    for parameter in module.parameters():
        parameter.data = parameter.data + 0.1 * torch.randn_like(parameter)


def add_in_place(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))


def add_to_data_and_refresh(module):
    for parameter in module.parameters():
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    gnomon.refresh(module)


def step_of_an_optimizer(module):
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    torch.optim.SGD(module.parameters(), lr=0.1).step()


def step_of_a_fused_optimizer(module):
    """It writes without PyTorch's counting it."""
    for parameter in module.parameters():
        parameter.grad = torch.randn_like(parameter)
    try:
        torch.optim.Adam(module.parameters(), lr=0.1, fused=True).step()
    except RuntimeError as reason:
        pytest.skip(f"this PyTorch has none for the CPU: {reason}")


def one_bias_alone(module):
    with torch.no_grad():
        [p for p in module.parameters() if p.dim() == 1][-1][0] += 1


def stack_of(module) -> nn.ModuleList:
    for name in ("layers", "layer", "h"):
        if hasattr(module, name):
            return getattr(module, name)
    raise AssertionError(f"no layers in {type(module).__name__}")


def swap_two_layers(module):
    layers = stack_of(module)
    layers[0], layers[1] = layers[1], layers[0]


def swap_two_layers_weights(module):
    layers = stack_of(module)
    first, second = (copy.deepcopy(layer.state_dict()) for layer in layers)
    layers[0].load_state_dict(second)
    layers[1].load_state_dict(first)


def square_weight(module) -> nn.Parameter:
    return next(p for p in module.parameters() if p.dim() == 2 and p.shape == (D, D))


def transpose_a_square_weight_in_its_place(module):
    """The same address, shape and version."""
    square_weight(module).data = square_weight(module).data.t()


def share_a_weight(module):
    """Weight tying: two names, one tensor."""
    projections = [m for m in module.modules() if isinstance(m, nn.Linear) and m.weight.shape == (D, D)]
    projections[0].weight = projections[-1].weight


CHANGES = {
    "load_state_dict": lambda m: m.load_state_dict(other_state(m)),
    "assign": load_assign,
    "p.data =": assign_data,
    "p.add_": add_in_place,
    "p.data.add_ and refresh": add_to_data_and_refresh,
    "optimizer step": step_of_an_optimizer,
    "fused optimizer step": step_of_a_fused_optimizer,
    "one bias": one_bias_alone,
    "swapped layers": swap_two_layers,
    "swapped weights": swap_two_layers_weights,
    "bfloat16 and back": lambda m: m.to(torch.bfloat16).float(),
    "double and back": lambda m: m.double().float(),
}
IN_ANY_LINEAR = {"transposed": transpose_a_square_weight_in_its_place, "shared": share_a_weight}


@pytest.mark.parametrize(
    "family, change",
    [(f, c) for f in FAMILIES for c in CHANGES if f.name != "layer" or "swapped" not in c],  # it has but one
    ids=str,
)
def test_the_next_call_uses_the_new_weights(family, change):
    """C14."""
    module, x = fast(family), torch.randn(2, 6, D)
    before = check(family, module, x)
    CHANGES[change](module)
    after = check(family, module, x)
    assert change == "double and back" or not torch.equal(before, after), "the change changed nothing"


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in ("reference-causal", "bert")], ids=str)
@pytest.mark.parametrize("change", IN_ANY_LINEAR)
def test_changes_of_single_tensors(family, change):
    module, x = fast(family), torch.randn(2, 6, D)
    before = check(family, module, x)
    IN_ANY_LINEAR[change](module)
    assert not torch.equal(before, check(family, module, x))


@families
def test_double_falls_back_and_half_is_answered(family):
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    check_falls_back(family, module.double(), x.double(), reason="float64")
    module.half()
    with torch.inference_mode():
        assert family.call(module, x.half(), None).dtype is torch.float16
    assert entry(module)["answered"] == 2
    module.float()
    check(family, module, x)


def test_a_change_that_pytorch_does_not_count_is_documented_to_need_refresh():
    """Were it seen, refresh() would not be needed, and the documentation wrong."""
    family = FEW[0]  # the plain path would use the weights where they lie, and so the new ones
    module, x = fast(family, force={"fused_attention": True}), torch.randn(2, 6, D)
    before = check(family, module, x)
    module.layers[0].fc1.weight.data.add_(1.0)
    with torch.inference_mode():
        stale = module(x)
    gnomon.refresh(module)
    assert torch.equal(stale, before) and not torch.equal(check(family, module, x), stale)


def test_no_call_runs_on_the_old_weights_while_another_one_reads_the_refreshed(monkeypatch):
    module, x = fast(FEW[0], force={"fused_attention": True}), torch.randn(2, 6, D)
    before, answers = check(FEW[0], module, x), []
    reading, go_on = threading.Event(), threading.Event()
    adapter = type(gnomon._state.state_of(module).adapter)
    describe = adapter.describe

    def slowly(self, module):
        reading.set()
        assert go_on.wait(60)
        return describe(self, module)

    def work():
        with torch.inference_mode():
            answers.append(module(x))

    monkeypatch.setattr(adapter, "describe", slowly)
    module.layers[0].fc1.weight.data.add_(1.0)
    gnomon.refresh(module)
    threads = [threading.Thread(target=work) for _ in range(2)]
    threads[0].start()
    assert reading.wait(60)
    threads[1].start()
    threads[1].join(0.2)  # long enough to answer, did it not wait
    go_on.set()
    for thread in threads:
        thread.join()
    assert torch.equal(*answers) and not torch.equal(answers[0], before)


@pytest.mark.parametrize("family", [f for f in FAMILIES if f.name in ("encoder", "gpt2")], ids=str)
def test_weights_that_change_while_they_are_read_are_read_again(family, monkeypatch):
    module, x = fast(family), torch.randn(2, 6, D)
    adapter = type(gnomon._state.state_of(module).adapter)
    describe = adapter.describe

    def beside(self, module):
        stack = describe(self, module)
        assign_data(module)
        return stack

    with monkeypatch.context() as patch, torch.no_grad():
        patch.setattr(adapter, "describe", beside)
        family.call(module, x, None)
    check(family, module, x)


def test_unchanged_weights_are_packed_once(monkeypatch):
    from gnomon._engine import Engine

    refreshed = []
    monkeypatch.setattr(Engine, "refresh", lambda self, tensors: refreshed.append(self))
    module, x = fast(FEW[0]), torch.randn(2, 6, D)
    with torch.inference_mode():
        for _ in range(5):
            module(x)
    module.train()
    module.eval()  # every flag was written, none changed
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    with torch.inference_mode():
        module(x)
    assert not refreshed


@families
def test_attributes_that_change_on_every_call_pack_nothing(family, monkeypatch):
    """A hook that counts, or keeps the last output, on the module itself: seen as a change, but not of the weights."""
    from gnomon._engine import Engine

    refreshed, refresh = [], Engine.refresh
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    monkeypatch.setattr(Engine, "refresh", lambda self, tensors: refreshed.append(1) or refresh(self, tensors))
    module.register_forward_hook(lambda m, args, out: setattr(m, "last", out))
    with torch.inference_mode():
        for _ in range(3):
            family.call(module, x, None)
    assert not refreshed and reasons(module) == []
    before = check(family, module, x)
    one_bias_alone(module)
    assert not torch.equal(before, check(family, module, x)) and len(refreshed) == 1
    module.last = None
    gnomon.refresh(module)
    check(family, module, x)
    assert len(refreshed) == 2


def has_step_hooks() -> bool:
    try:
        from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: F401
    except ImportError:
        return False
    return True


@pytest.mark.skipif(not has_step_hooks(), reason="PyTorch before 2.0 has no hook for every optimizer")
def test_a_step_is_of_the_modules_whose_weights_it_writes(monkeypatch):
    """An optimizer that counts nothing, as other packages' do; a module that it does not train stays as it is."""
    from gnomon._engine import Engine

    class Silent(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        def step(self):
            for parameter in self.param_groups[0]["params"]:
                parameter.data.add_(0.1)

    refreshed, refresh = [], Engine.refresh
    trained, teacher, x = fast(FEW[0], 1), fast(FEW[0], 2), torch.randn(2, 6, D)
    check(FEW[0], trained, x), check(FEW[0], teacher, x)
    monkeypatch.setattr(Engine, "refresh", lambda self, tensors: refreshed.append(self) or refresh(self, tensors))
    Silent(trained.parameters()).step()
    check(FEW[0], trained, x), check(FEW[0], teacher, x)
    assert refreshed == gnomon._state.state_of(trained).engines


@families
def test_weights_that_move_into_shared_memory_are_read_there(family, monkeypatch):
    """Nothing of PyTorch's own looks any different but the address; the old memory is gone."""
    from gnomon._engine import Engine

    refreshed, refresh = [], Engine.refresh
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    monkeypatch.setattr(Engine, "refresh", lambda self, tensors: refreshed.append(1) or refresh(self, tensors))
    module.share_memory()
    check(family, module, x)
    assert len(refreshed) == 1


def test_new_weights_keep_the_plans():
    module, x = fast(FEW[0], effort="measure"), torch.randn(2, 6, D)
    with torch.inference_mode():
        module(x)
        module.load_state_dict(other_state(module))
        module(x)
    (engine,) = entry(module)["engines"]
    assert engine["stats"]["problems_planned"] == 1 and engine["stats"]["forwards"] == 2


@pytest.mark.parametrize("fp32_only", [True, False])
def test_two_models_of_one_structure_share_a_plan_folder(tmp_path, fp32_only):
    """C15: choices are shared, answers are not; the second is also tried with weights fifty times as large."""
    family, x = FEW[0], torch.randn(4, 16, D)
    options = {"effort": "measure", "plan_dir": tmp_path, "fp32_only": fp32_only}
    first, second = fast(family, 1, **options), fast(family, 2, **options)
    y1, y2 = check(family, first, x), check(family, second, x)
    assert not torch.equal(y1, y2)
    if fp32_only:  # a lower precision is judged again with the second's weights, and may be refused
        assert entry(second)["engines"][0]["stats"]["store_hits"] == 1
    with torch.no_grad():
        for name, parameter in second.named_parameters():
            if "norm" not in name:
                parameter.mul_(50)
    check(family, second, x)
    assert torch.equal(check(family, first, x), y1)


def test_weights_made_in_inference_mode_are_not_watched_but_refused():
    with torch.inference_mode():
        module = fast(FEW[0])
        x = torch.randn(2, 6, D)
        expected = gnomon.restore(copy.deepcopy(module))(x)
        assert_in_contract(module(x), expected)
    assert "inference mode" in entry(module)["fallbacks"][0]["reason"]


def test_own_answer_is_the_modules_own():
    """The yardstick of these tests is not Gnomon in disguise."""
    family = FEW[0]
    module, x = fast(family), torch.randn(2, 6, D)
    own_answer(family, module, x)
    assert entry(module)["answered"] == 0


@pytest.mark.parametrize("family", FEW, ids=str)
def test_a_weight_replaced_while_the_weights_are_read_is_used_and_watched(monkeypatch, family):
    """As by another thread: between the reading of the parameters and of what holds them."""
    module, x, glance = fast(family), torch.randn(2, 6, D), gnomon._weights_watch.glance

    def replaces(*seen):
        monkeypatch.setattr(gnomon._weights_watch, "glance", glance)
        holder, name = [(m, n) for m in module.modules() for n, p in m._parameters.items() if p is not None and p.dim() > 1][0]
        setattr(holder, name, nn.Parameter(torch.randn_like(getattr(holder, name))))
        return glance(*seen)

    monkeypatch.setattr(gnomon._weights_watch, "glance", replaces)
    with torch.no_grad():
        module(x)
    before = check(family, module, x)
    with torch.no_grad():
        next(p for p in module.parameters() if p.dim() > 1).mul_(3)
    assert not torch.equal(check(family, module, x), before)


@pytest.fixture
def launched_first(monkeypatch):
    """The weights are tested after the launch, as on a device that works on its own."""
    monkeypatch.setattr(gnomon._weights_watch, "glance", lambda *_: None)  # a quick test is never late
    monkeypatch.setattr(gnomon._device, "has_streams", lambda device: True)
    monkeypatch.setattr(gnomon._device, "tests_weights_late", lambda: True)


@pytest.mark.parametrize("family", FEW, ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_a_launch_with_old_weights_is_thrown_away(launched_first, family, change):
    module, x = fast(family), torch.randn(2, 6, D)
    before = check(family, module, x)
    (engine,) = gnomon._state.state_of(module).engines
    CHANGES[change](module)
    after = check(family, module, x)
    assert change == "double and back" or not torch.equal(before, after)
    launched = engine.stats()["forwards"]
    check(family, module, x)
    assert engine.stats()["forwards"] == launched + 1  # nothing changed: once


def test_old_weights_never_reach_an_output_that_is_given(launched_first):
    """It may be the input, which a first launch would have overwritten."""
    family = FEW[0]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    add_in_place(module)
    expected, in_place = own_answer(family, module, x), x.clone()
    with torch.inference_mode():
        gnomon.forward(module, in_place, out=in_place)
    assert_in_contract(in_place, expected)


def test_a_module_of_other_sizes_after_a_launch_by_the_old_ones(launched_first):
    family = FEW[0]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    wider = reference(d_model=2 * D)
    module.layers, module.config = wider.layers, wider.config
    check(family, module, torch.randn(2, 6, 2 * D))


def test_what_the_module_became_answers_after_a_launch_by_what_it_was(launched_first):
    family = FEW[0]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    handle = module.layers[0].fc1.register_forward_hook(lambda *_: None)
    check_falls_back(family, module, x, reason="hooks")
    handle.remove()
    check(family, module, x)
    module.layers[0].fc1.weight.requires_grad_(True)
    assert module(x).requires_grad
    module.double()
    check_falls_back(family, module, x.double(), reason="float64")


def test_errors_after_a_launch_by_what_it_was_are_told_as_without_it(launched_first):
    family = FEW[0]
    module, x, wider = fast(family), torch.randn(2, 6, D), torch.randn(2, 6, D + 1)
    check(family, module, x)
    module.layers[0].fc1.register_forward_hook(lambda *_: None)
    with torch.no_grad(), pytest.raises(RuntimeError) as caught:
        module(wider)  # the launch was refused, for its width; then the module's own forward
    assert caught.value.__context__ is None
    module = fast(family)
    check(family, module, x)
    add_in_place(module)
    with torch.no_grad(), pytest.raises(gnomon.CallerError) as caught:
        module(x, torch.ones(2, 7))
    assert caught.value.__context__ is None


def test_hooks_on_what_runs_beside_gnomon_fire_once_where_a_launch_comes_first(launched_first):
    module, ids, seen = gpt2(), torch.randint(0, 50, (2, 6)), []
    module.wte.register_forward_hook(lambda *_: seen.append(1))
    gnomon.optimize(module, effort="estimate")
    with torch.no_grad():
        for change in (lambda p: None, lambda p: p.mul_(1.1)):
            seen.clear()
            change(module.h[0].mlp.c_fc.weight)
            module(ids, use_cache=False)
            assert len(seen) == 1
    assert entry(module)["answered"] == 2


PLANS_ONCE = """
import sys, torch, gnomon
layer = torch.nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()
gnomon.optimize(model, budget=0.2, plan_dir=sys.argv[1])
with torch.no_grad():
    model(torch.ones(2, 6, 32))
print(gnomon.explain(model).as_dict()["modules"][0]["engines"][0]["stats"])
"""


def test_an_environment_that_is_another_one_is_a_miss(tmp_path):
    """C17: plans of another library, processor or version are left alone, and their not being used is said."""
    first = run_python(PLANS_ONCE, str(tmp_path), GNOMON_LOG="info")
    assert "'store_hits': 0" in first.stdout and "other environments" not in first.stderr, first.stderr
    assert "'store_hits': 1" in run_python(PLANS_ONCE, str(tmp_path)).stdout
    (file,) = tmp_path.glob("*.json")
    stored = json.loads(file.read_text())
    stored["environment"]["facts"]["gnomon"] = "0.0.1"
    other = tmp_path / "another-environment.json"
    other.write_text(json.dumps(stored))
    file.unlink()
    again = run_python(PLANS_ONCE, str(tmp_path), GNOMON_LOG="info")
    assert "'store_hits': 0" in again.stdout and "'problems_planned': 1" in again.stdout
    assert "1 other environments' plans" in again.stderr
    assert json.loads(other.read_text()) == stored and file.exists()


def test_a_stored_plan_of_another_environment_in_this_ones_file_is_a_miss_too(tmp_path, capfd):
    family, x = FEW[0], torch.randn(2, 6, D)
    options = {"effort": "measure", "plan_dir": tmp_path}
    check(family, fast(family, **options), x)
    (file,) = tmp_path.glob("*.json")
    stored = json.loads(file.read_text())
    stored["environment"]["device"] = "another processor"
    file.write_text(json.dumps(stored))
    module = fast(family, **options)
    check(family, module, x)
    assert entry(module)["engines"][0]["stats"]["store_hits"] == 0
    assert "device is 'another processor' there" in capfd.readouterr().err
    kept = [json.loads(path.read_text()) for path in tmp_path.iterdir() if path != file and path.stat().st_size]
    assert stored in kept and json.loads(file.read_text())["environment"]["device"] != "another processor"
