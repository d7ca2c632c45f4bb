"""From optimize to restore: what a module keeps, how it is copied and saved, when it is freed, and where the library is."""

import copy
import gc
import io
import pickle
import sys
import weakref

import pytest
import torch
from torch import nn

import gnomon
from dropin_support import (
    D,
    FAMILIES,
    FEW,
    FFN,
    HEADS,
    LAYERS,
    QUICK,
    ROOT,
    assert_in_contract,
    check,
    encoder,
    encoder_layer,
    entry,
    fast,
    own_answer,
    reasons,
    run_python,
)
from reference import Reference
from stack_config import StackConfig

families = pytest.mark.parametrize("family", FAMILIES, ids=str)
CONFIG = StackConfig(layers=LAYERS, d_model=D, n_heads=HEADS, d_ff=FFN)


class Fast(gnomon.Optimized, Reference):
    gnomon_options = dict(QUICK)


class FastEncoder(gnomon.Optimized, nn.TransformerEncoder):
    """No options: the defaults, with which a call plans for real."""


def state_bytes(module) -> bytes:
    memory = io.BytesIO()
    torch.save(module.state_dict(), memory)
    return memory.getvalue()


@families
def test_state_dict_is_the_same_to_the_byte(family):
    """C23: before and after optimizing, planning and restoring; strictly loadable either way."""
    torch.manual_seed(0)
    module = family.make()
    plain = copy.deepcopy(module)
    names = [n for n, _ in module.named_modules()], list(vars(module))
    before = state_bytes(module)
    gnomon.optimize(module, **QUICK)
    assert state_bytes(module) == before
    check(family, module, torch.randn(2, 5, D))
    assert state_bytes(module) == before and ([n for n, _ in module.named_modules()], list(vars(module))) == names
    plain.load_state_dict(module.state_dict(), strict=True)
    module.load_state_dict(plain.state_dict(), strict=True)
    assert (
        str(module) == str(plain) and isinstance(module, type(plain)) and type(module).__name__ == type(plain).__name__
    )
    gnomon.restore(module)
    assert state_bytes(module) == before and type(module) is type(plain)
    with torch.no_grad():
        assert torch.equal(
            family.call(module, torch.ones(1, 3, D), None), family.call(plain, torch.ones(1, 3, D), None)
        )


def test_the_mixin_adds_nothing_to_the_state():
    torch.manual_seed(0)
    plain, module = Reference(CONFIG).eval(), Fast(CONFIG).eval()
    assert list(plain.state_dict()) == list(module.state_dict())
    module.load_state_dict(plain.state_dict(), strict=True)
    assert state_bytes(plain) == state_bytes(module)
    x = torch.randn(2, 5, D)
    with torch.inference_mode():
        assert_in_contract(module(x), plain(x))
    assert entry(module)["answered"] == 1 and entry(module)["options"]["effort"] == "estimate"
    plain.load_state_dict(module.state_dict(), strict=True)


def test_the_mixin_over_torchs_encoder():
    module = FastEncoder(
        nn.TransformerEncoderLayer(D, HEADS, FFN, batch_first=True), 1, enable_nested_tensor=False
    ).eval()
    gnomon.optimize(module, **QUICK)  # the options of a call win over the class's
    x = torch.randn(2, 5, D)
    with torch.inference_mode():
        actual = module(x)
    with torch.enable_grad():
        assert_in_contract(actual, nn.TransformerEncoder.forward(module, x).detach())
    assert entry(module)["answered"] == 1
    with pytest.raises(gnomon.CallerError, match="optimized by its class"):
        gnomon.restore(module)


def test_the_mixin_in_the_wrong_place_is_refused():
    with pytest.raises(gnomon.CallerError, match="before Reference"):

        class Slow(Reference, gnomon.Optimized):
            pass


def test_a_mixin_whose_own_forward_hides_it_is_refused():
    with pytest.raises(gnomon.CallerError, match=r"class FastOwn\(gnomon.Optimized, Own\): pass"):

        class Own(gnomon.Optimized, nn.Module):
            def forward(self, x):
                return x


def test_a_mixins_own_forward_that_goes_on_to_gnomons_is_what_no_adapter_knows():
    class Twice(Fast):
        def forward(self, x):
            return 2 * super().forward(x)

    module, x = Twice(CONFIG).eval(), torch.randn(2, 5, D)
    with torch.inference_mode():
        assert_in_contract(module(x), 2 * Reference.forward(module, x))
    assert "no adapter knows Twice" in reasons(module)[0]


@families
def test_deep_copies_are_independent(family):
    module, x = fast(family), torch.randn(2, 5, D)
    y = check(family, module, x)
    twin = copy.deepcopy(module)
    assert (
        type(twin) is type(module)
        and entry(twin)["answered"] == 0
        and entry(twin)["options"] == entry(module)["options"]
    )
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(1.5)
    assert not torch.equal(check(family, twin, x), y) and torch.equal(check(family, module, x), y)
    del module
    gc.collect()
    check(family, twin, x)


def test_a_shallow_copy_is_the_plain_module_over_the_same_parts():
    module, x = fast(FAMILIES[0]), torch.randn(2, 5, D)
    y = check(FAMILIES[0], module, x)
    twin = copy.copy(module)
    assert type(twin) is Reference and twin.layers is module.layers
    with torch.inference_mode():
        assert_in_contract(twin(x), y)
    assert torch.equal(check(FAMILIES[0], module, x), y)


def test_a_deep_copy_inside_a_larger_model_keeps_shared_modules():
    layer = fast(FAMILIES[4])
    model = nn.ModuleDict({"a": layer, "b": layer, "c": nn.Linear(2, 2)})
    twin = copy.deepcopy(model)
    assert twin["a"] is twin["b"] and twin["a"] is not layer and type(twin["a"]) is type(layer)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@families
def test_pickles_hold_the_plain_module(family, protocol):
    module, x = fast(family), torch.randn(2, 5, D)
    check(family, module, x)
    data = pickle.dumps(module, protocol)
    loaded = pickle.loads(data)
    assert b"gnomon" not in data and type(loaded) is type(gnomon.restore(copy.deepcopy(module)))
    assert_in_contract(own_answer(family, loaded, x), own_answer(family, module, x))
    check(family, gnomon.optimize(loaded, **QUICK), x)


def test_a_saved_module_loads_where_there_is_no_gnomon(tmp_path):
    module = nn.Sequential(fast(FAMILIES[2]), nn.Linear(D, 2))
    with torch.inference_mode():
        module(torch.randn(1, 3, D))
    torch.save(module, tmp_path / "model.pt")
    code = "import torch, sys; m = torch.load(sys.argv[1]); print(type(m[0]).__mro__[0], 'gnomon' in sys.modules)"
    if "weights_only" in torch.load.__code__.co_varnames:
        code = code.replace("sys.argv[1]", "sys.argv[1], weights_only=False")
    done = run_python(code, str(tmp_path / "model.pt"), path="")
    assert done.stdout.strip() == "<class 'torch.nn.modules.transformer.TransformerEncoder'> False", done.stderr


def test_a_mixins_pickle_is_of_its_own_class():
    module = Fast(CONFIG).eval()
    loaded = pickle.loads(pickle.dumps(module))
    assert type(loaded) is Fast and state_bytes(loaded) == state_bytes(module)
    with torch.inference_mode():
        loaded(torch.randn(1, 3, D))
    assert entry(loaded)["answered"] == 1


@families
def test_a_module_is_freed_with_all_that_belongs_to_it(family):
    module = fast(family)
    check(family, module, torch.randn(2, 5, D))
    ends = [weakref.ref(module), weakref.ref(next(module.parameters())), weakref.ref(gnomon._state.state_of(module))]
    del module
    gc.collect()
    assert [end() for end in ends] == [None, None, None]


def test_a_module_that_refers_to_itself_is_freed_too():
    module = Fast(CONFIG).eval()
    module.again, module.method = [module], module.forward
    object.__setattr__(module, "itself", module)
    with torch.inference_mode():
        module(torch.randn(1, 3, D))
    end = weakref.ref(module)
    module.again.clear()
    del module
    gc.collect()
    assert end() is None


def test_a_class_that_others_derived_from_ours_is_kept():
    """As parametrizations do, or fully_shard: the derived class is in copies, and restore() does not throw it away."""
    module, x = fast(FAMILIES[4]), torch.randn(2, 5, D)
    kind = type(module)
    module.__class__ = type("Doubled", (kind,), {"forward": lambda self, *a: kind.forward(self, *a) * 2})
    with torch.no_grad():
        twin = copy.deepcopy(module)
        assert type(twin) is type(module) and torch.equal(twin(x), module(x))
    with pytest.raises(gnomon.CallerError, match="Doubled since: undo that first"):
        gnomon.restore(module)
    module.__class__ = kind
    assert type(gnomon.restore(module)) is nn.TransformerEncoderLayer


def test_optimize_finds_the_modules_inside():
    inner = encoder()
    model = nn.Sequential(nn.Linear(D, D), inner, nn.Linear(D, 2), encoder_layer(batch_first=True)).eval()
    model[2], model[3] = model[3], model[2]
    assert gnomon.optimize(model, **QUICK) is model
    with torch.inference_mode():
        model(torch.randn(2, 5, D))
    modules = gnomon.explain(model).as_dict()["modules"]
    assert [(m["name"], m["answered"]) for m in modules] == [("1", 1), ("2", 1)]
    assert type(inner.layers[0]) is nn.TransformerEncoderLayer, "only the outermost ones"
    gnomon.restore(model)
    assert type(model[1]) is nn.TransformerEncoder and type(model[2]) is nn.TransformerEncoderLayer


def test_optimize_again_replaces_the_options():
    module = fast(FEW[0], fp32_only=True)
    check(FEW[0], module, torch.randn(2, 5, D))
    gnomon.optimize(module, **QUICK, threads=1)
    assert entry(module)["options"] == {"effort": "estimate", "budget": "0.2", "threads": "1"}
    check(FEW[0], module, torch.randn(2, 5, D))


@pytest.mark.parametrize(
    "options, word",
    [
        ({"no_such": 1}, "no_such"),
        ({"effort": "enormous"}, "enormous"),
        ({"padded_rows": "zero"}, "padded_rows"),
        ({"device": "cuda:0"}, "device"),
        ({"budget": "soon"}, "budget"),
        ({"plan_dir": 5}, "plan_dir: expected a path"),
    ],
)
def test_wrong_options_are_refused_before_anything_changes(options, word):
    module = encoder()
    with pytest.raises(gnomon.CallerError, match=word):
        gnomon.optimize(module, **options)
    assert type(module) is nn.TransformerEncoder and gnomon._state.state_of(module) is None


def test_what_nobody_knows_is_refused_and_what_is_no_module():
    with pytest.raises(gnomon.CallerError, match="no adapter knows Sequential.*register_adapter"):
        gnomon.optimize(nn.Sequential(nn.Linear(2, 2)))
    with pytest.raises(gnomon.CallerError, match="torch.nn.Module"):
        gnomon.optimize(torch.randn(2))
    for function in (gnomon.explain, gnomon.forward):
        with pytest.raises(gnomon.CallerError, match="not optimized"):
            function(encoder())


def test_effort_stored_without_a_stored_plan_is_an_error_of_the_call():
    module = fast(FEW[0], effort="stored", plan_dir=None)
    with torch.inference_mode(), pytest.raises(gnomon.CallerError, match="stored"):
        module(torch.randn(2, 5, D))


def test_a_limit_that_no_candidate_meets_is_an_error_of_the_call():
    module = fast(FEW[0], memory_limit="1KiB", plan_dir=None)
    with torch.inference_mode(), pytest.raises(gnomon.CallerError, match="memory_limit"):
        module(torch.randn(2, 5, D))


def test_where_the_environment_fails_the_module_answers(said, monkeypatch):
    """C11: no out-of-memory error escapes; into a tensor of the caller's, half an answer would, so there it does."""
    module, x = fast(FEW[0]), torch.randn(2, 5, D)

    def fail(*_):
        raise gnomon.EnvironmentError_("not enough memory")

    monkeypatch.setattr(gnomon._engine.Engine, "forward", fail)
    with torch.inference_mode():
        assert torch.equal(module(x), own_answer(FEW[0], module, x.clone())) and len(said()) == 1
        with pytest.raises(gnomon.EnvironmentError_):
            gnomon.forward(module, x, out=x)
    assert reasons(module) == ["not enough memory"]


def test_explain_for_people_and_for_programs():
    import json

    module = gnomon.optimize(encoder(), **QUICK)
    assert "not called yet" in str(gnomon.explain(module))
    with torch.no_grad():
        module(torch.randn(2, 5, D))
        module(torch.randn(2, 5, D), torch.rand(5, 5))
    explanation = gnomon.explain(module)
    text, data = str(explanation), json.loads(json.dumps(explanation.as_dict()))
    assert "torch.nn.TransformerEncoder" in text and "b2 s5 d32" in text and "not exactly causal" in text
    (one,) = data["modules"]
    assert one["answered"] == 1 and one["fallbacks"] == [
        {"reason": "the attention mask is not exactly causal", "count": 1}
    ]
    assert one["problems"][0]["winner"] and one["engines"][0]["stats"]["forwards"] == 1


def test_explain_says_what_a_plan_is_worth():
    module = gnomon.optimize(encoder(), effort="measure", budget=0, plan_dir=None)
    with torch.no_grad():
        module(torch.randn(2, 5, D))
    assert "planning was cut short" in str(gnomon.explain(module))
    module = gnomon.optimize(encoder(), effort="measure", budget=0.5, total_budget=0.5, plan_dir=None)
    with torch.no_grad():
        module(torch.randn(2, 5, D))
        module(torch.randn(3, 5, D))
    assert "note   choices borrowed from b2 s5" in str(gnomon.explain(module))


def test_the_mixin_names_what_optimize_would_take():
    class Around(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = encoder()

        def forward(self, x):
            return self.inner(x)

    class Fast(gnomon.Optimized, Around):
        pass

    module = Fast().eval()
    with torch.no_grad():
        module(torch.randn(2, 5, D))
    assert "no adapter knows Fast" in reasons(module)[0] and "one knows `inner` inside of it" in reasons(module)[0]


LEAVES_WHILE_PLANNING = """
import torch, gnomon
layer = torch.nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)
model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval()
gnomon.optimize(model, budget=60, background=True, plan_dir=None)
with torch.no_grad():
    model(torch.randn(4, 64, 256))
print(gnomon.explain(model).as_dict()["modules"][0]["answered"])
"""


def test_a_program_that_ends_while_the_background_plans():
    """The interpreter's tensors go first, the planning that reads them is ended later."""
    done = run_python(LEAVES_WHILE_PLANNING)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr


def test_library_path_is_named_or_found():
    assert gnomon.library_path().is_file()
    done = run_python("import gnomon; print(gnomon.library_path())", GNOMON_LIBRARY=str(gnomon.library_path()))
    assert done.stdout.strip() == str(gnomon.library_path())


def test_a_library_that_is_not_there_is_named():
    code = "import gnomon, torch; gnomon.optimize(torch.nn.TransformerEncoderLayer(8, 2))"
    done = run_python(code, GNOMON_LIBRARY="/nowhere/libgnomon.so")
    assert "EnvironmentError_" in done.stderr and "/nowhere/libgnomon.so" in done.stderr


def test_a_library_of_another_build_is_refused():
    import _ctypes  # a shared library without any of our symbols

    code = "from gnomon import _library; _library.library()"
    done = run_python(code, GNOMON_LIBRARY=_ctypes.__file__)
    assert "EnvironmentError_" in done.stderr and "undefined symbol" in done.stderr and "build it again" in done.stderr


def test_a_library_of_another_version_is_refused():
    code = "from gnomon import _library; _library.__version__ = '9.9'; _library.library()"
    done = run_python(code, GNOMON_LIBRARY=str(gnomon.library_path()))
    assert f"Gnomon {gnomon.__version__}, this package is 9.9" in done.stderr


def test_the_versions_are_one():
    assert f"VERSION {gnomon.__version__}" in (ROOT / "CMakeLists.txt").read_text().split("project(gnomon")[1][:40]


def test_nothing_but_torch_is_imported():
    """The wheel asks for nothing else."""
    code = "import sys, torch; before = set(sys.modules); import gnomon; print(*sorted({m.split('.')[0] for m in set(sys.modules) - before}))"
    done = run_python(code)
    assert set(done.stdout.split()) <= {"gnomon", *sys.stdlib_module_names}, done.stdout + done.stderr
