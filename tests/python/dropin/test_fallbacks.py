"""Whatever is not exactly recognised is answered by the module itself, said once, listed, and taken back when it ends."""

import copy
import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import gnomon
from dropin_support import (
    BY_NAME,
    D,
    FAMILIES,
    FEW,
    assert_in_contract,
    bert_encoder,
    check,
    check_falls_back,
    encoder,
    entry,
    fast,
    gpt2,
    own_answer,
    reasons,
    reference,
)

families = pytest.mark.parametrize("family", FAMILIES, ids=str)


class Scale(nn.Module):
    def forward(self, x):
        return x * 1.5


class Wrapped(nn.Module):
    """What LoRA and its kind put in the place of a projection."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 1.25

    @property
    def weight(self):
        return self.inner.weight

    @property
    def bias(self):
        return self.inner.bias


class LoudLinear(nn.Linear):
    def forward(self, x):
        return super().forward(x) * 1.25


def owner_of(module, kind):
    """(the module, the attribute's name) that holds the last submodule of a kind."""
    found = [(m, n) for m in module.modules() for n, c in m.named_children() if type(c) is kind]
    return found[-1]


def linear_of(module):
    """A projection; GPT-2 has Conv1D."""
    kinds = [nn.Linear] + [type(m) for m in module.modules() if type(m).__name__ == "Conv1D"][:1]
    return next(owner_of(module, kind) for kind in kinds if any(type(m) is kind for m in module.modules()))


def layer_of(module):
    return next(
        m
        for m in module.modules()
        if type(m).__name__ in ("Layer", "BertLayer", "GPT2Block", "TransformerEncoderLayer")
    )


def wrap(module):
    owner, name = linear_of(module)
    setattr(owner, name, Wrapped(getattr(owner, name)))


def subclass(module):
    owner, name = linear_of(module)
    old = getattr(owner, name)
    if isinstance(old, nn.Linear):
        new = LoudLinear(old.in_features, old.out_features)
        new.load_state_dict(old.state_dict())
        setattr(owner, name, new.eval())
    else:
        old.__class__ = type(
            "Conv1D", (type(old),), {"forward": lambda self, x: super(type(self), self).forward(x) * 2}
        )


def own_forward(module):
    owner, name = linear_of(module)
    inner = getattr(owner, name)
    plain = type(inner).forward
    inner.forward = lambda x: plain(inner, x) * 1.25


def parametrized(module):
    owner, name = owner_of(module, nn.LayerNorm)
    parametrize.register_parametrization(getattr(owner, name), "weight", Scale())


def other_norm(module):
    owner, name = owner_of(module, nn.LayerNorm)
    norm = nn.LayerNorm(D, eps=0.1)
    norm.load_state_dict(getattr(owner, name).state_dict())
    setattr(owner, name, norm.eval())


def hook(register, function):
    def change(module):
        owner, name = linear_of(module)
        getattr(getattr(owner, name), register)(function)

    return change


def old_weight_norm(module):
    owner, name = linear_of(module)
    inner = getattr(owner, name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.nn.utils.weight_norm(inner)


CHANGES = {
    "forward hook": (hook("register_forward_hook", lambda m, args, out: out * 1.5), "has hooks"),
    "forward pre-hook": (hook("register_forward_pre_hook", lambda m, args: (args[0] * 1.5,)), "has hooks"),
    "backward hook": (hook("register_full_backward_hook", lambda *_: None), "has hooks"),
    "wrapper": (wrap, "Wrapped"),
    "subclass": (subclass, ""),
    "forward of its own": (own_forward, "methods of its own: forward"),
    "parametrization": (parametrized, ""),
    "weight norm": (old_weight_norm, ""),
    "extra submodule": (lambda m: layer_of(m).add_module("extra", Scale()), "extra submodule `extra`"),
    "another eps": (other_norm, "different eps"),
    "inner training": (lambda m: layer_of(m).train(), "training mode"),
}


def prepared(family, change, when):
    torch.manual_seed(0)
    module, x = family.make(), torch.randn(2, 6, D)
    if when == "before":
        CHANGES[change][0](module)
        gnomon.optimize(module, effort="estimate", budget=0.1)
    else:
        gnomon.optimize(module, effort="estimate", budget=0.1)
        check(family, module, x)
        CHANGES[change][0](module)
    return module, x


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize(
    "family, change",
    [  # a layer is the module itself, and no inner one
        (f, c) for f in FAMILIES for c in CHANGES if f.name != "layer" or c not in ("inner training", "extra submodule")
    ],
    ids=str,
)
def test_changed_modules_answer_for_themselves(family, change, when):
    """C24, before and after planning."""
    module, x = prepared(family, change, when)
    if change == "inner training":
        for m in module.modules():  # active, but the same on every call
            if isinstance(m, nn.Dropout):
                m.p = 0.0
            if isinstance(m, nn.MultiheadAttention):
                m.dropout = 0.0
    with torch.no_grad():  # not copied: a method of its own is bound to the very module
        actual = family.call(module, x, None)
        assert reasons(module), "Gnomon answered"
        gnomon.restore(module)
        assert torch.equal(actual, family.call(module, x, None))
        gnomon.optimize(module, effort="estimate")
        family.call(module, x, None)
    assert CHANGES[change][1] in reasons(module)[-1]


@pytest.mark.parametrize("family", [f for f in FAMILIES if "reference" not in f.name], ids=str)
def test_another_module_in_a_dropouts_place_is_seen(family):
    module, x = fast(family), torch.randn(2, 6, D)
    found = [(m, name) for m in module.modules() for name, part in m.named_children() if type(part) is nn.Dropout]
    found.remove((module, "drop")) if family.name == "gpt2" else None  # runs with the embeddings, which are not replaced
    assert len(found) >= 3
    for owner, name in found:
        dropout = getattr(owner, name)
        setattr(owner, name, Scale().eval())
        check_falls_back(family, module, x, reason="is a Scale, not an nn.Dropout")
        setattr(owner, name, nn.Identity().eval())
        check(family, module, x)
        setattr(owner, name, dropout)


@families
def test_a_hook_taken_off_brings_gnomon_back(family):
    module, x = fast(family), torch.randn(2, 6, D)
    owner, name = linear_of(module)
    for _ in range(2):
        check(family, module, x)
        handle = getattr(owner, name).register_forward_hook(lambda m, args, out: out * 1.5)
        with torch.no_grad():
            family.call(module, x, None)
        handle.remove()
    assert [f["count"] for f in entry(module)["fallbacks"]] == [2] and entry(module)["answered"] == 2


def test_hooks_put_in_by_the_back_door_are_seen():
    module, x = fast(FEW[0]), torch.randn(2, 6, D)
    check(FEW[0], module, x)
    inner = module.layers[0].fc1
    inner._forward_hooks = type(inner._forward_hooks)()  # replaced, then used through the door
    inner.register_forward_hook(lambda m, args, out: out * 1.5)
    check_falls_back(FEW[0], module, x, reason="has hooks")
    inner._forward_hooks.clear()
    check(FEW[0], module, x)
    inner._forward_hooks[12345] = lambda m, args, out: out * 1.5
    with torch.no_grad():
        module(x)
    assert entry(module)["fallbacks"][0]["count"] == 2


def replica_of(module):
    """What nn.DataParallel makes of a module, for every call and every device."""
    inner = list(module.modules())
    replicas = {m: m._replicate_for_data_parallel() for m in inner}
    for m, replica in replicas.items():
        for name, child in m._modules.items():
            setattr(replica, name, replicas[child])
        for name, parameter in m._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.detach())
    return replicas[module]


def test_replicas_of_data_parallel_are_not_planned_anew_for_every_call(said):
    family = BY_NAME["encoder-pre-seq-first"]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    states = len(gnomon._state._states)
    gnomon._dropin._say_replicas.cache_clear()
    with torch.no_grad():
        for _ in range(3):
            actual = family.call(replica_of(module), x, None)
            assert_in_contract(actual, own_answer(family, module, x))
    assert len(gnomon._state._states) == states and entry(module)["answered"] == 1
    assert len(said()) == 1 and "replicas of nn.DataParallel" in said()[0]


def test_reasons_that_name_shapes_do_not_pile_up(said):
    module = fast(BY_NAME["encoder"])
    with torch.no_grad():
        for seq in range(2, 102):
            module(torch.randn(1, seq, D), torch.zeros(4, seq, seq, dtype=torch.bool))
    told = entry(module)["fallbacks"]
    assert len(told) == 33 and sum(one["count"] for one in told) == 100 and len(said()) == 33
    assert "not said one by one" in told[-1]["reason"]


def test_global_hooks_fall_back():
    module, x, seen = fast(FEW[0]), torch.randn(2, 6, D), []
    check(FEW[0], module, x)
    handle = nn.modules.module.register_module_forward_hook(lambda m, args, out: seen.append(m))
    try:
        with torch.no_grad():
            module(x)
    finally:
        handle.remove()
    assert len(seen) > 10 and reasons(module)
    check(FEW[0], module, x)


@pytest.mark.parametrize("name", ["_ff_block", "_sa_block"])
def test_methods_of_its_own_on_the_module_itself(name):
    family = BY_NAME["layer"]
    module, x = fast(family), torch.randn(2, 6, D)
    check(family, module, x)
    setattr(module, name, lambda y, *a, **k: y * 0)
    check_falls_back(family, module, x, reason=f"methods of its own: {name}")
    delattr(module, name)
    check(family, module, x)


def test_a_forward_that_wraps_ours_is_called_and_calls_it():
    """As accelerate's hooks do."""
    family = BY_NAME["encoder"]
    module, x = fast(family), torch.randn(2, 6, D)
    ours = module.forward
    module.forward = lambda *a, **k: ours(*a, **k) * 2
    with torch.no_grad():
        doubled = module(x)
    del module.forward
    assert torch.equal(doubled, check(family, module, x) * 2) and entry(module)["answered"] == 2


def test_an_error_of_the_modules_own_is_told_as_without_gnomon():
    module = fast(BY_NAME["encoder"]).double()
    with torch.no_grad(), pytest.raises(RuntimeError) as caught:
        module(torch.randn(2, 6, D + 1, dtype=torch.float64))
    assert caught.value.__context__ is None and reasons(module)


class HalvedFFN(nn.TransformerEncoderLayer):
    def _ff_block(self, x):
        return super()._ff_block(x) * 0.5


def test_a_subclass_that_overrides_the_ffn():
    family = BY_NAME["encoder"]
    module = nn.TransformerEncoder(HalvedFFN(D, 4, 64, batch_first=True), 2, enable_nested_tensor=False).eval()
    gnomon.optimize(module, effort="estimate")
    check_falls_back(family, module, torch.randn(2, 6, D), reason="HalvedFFN")


class Renamed(nn.TransformerEncoderLayer):
    """Adds nothing but a constructor."""

    def __init__(self):
        super().__init__(D, 4, 64, batch_first=True)


def test_a_subclass_that_only_constructs_is_the_same_module():
    family = BY_NAME["encoder"]
    module = nn.TransformerEncoder(Renamed(), 2, enable_nested_tensor=False).eval()
    check(family, gnomon.optimize(module, effort="estimate"), torch.randn(2, 6, D))


# name -> (module, a word of the reason)
STRUCTURES = {
    "activation": (lambda: encoder(activation=lambda x: torch.tanh(x)), "activation"),
    "layers differ": (lambda: mixed_encoder(), "layer 1 has other weights or sizes"),
    "heads differ": (lambda: changed(encoder(), lambda m: setattr(m.layers[1].self_attn, "num_heads", 2)), "heads"),
    "norm_first differs": (
        lambda: changed(encoder(), lambda m: setattr(m.layers[1], "norm_first", True)),
        "norm_first",
    ),
    "bias_k": (lambda: changed(encoder(), add_bias_kv), "bias_k"),
    "zero attention": (
        lambda: changed(encoder(), lambda m: setattr(m.layers[0].self_attn, "add_zero_attn", True)),
        "zero",
    ),
    "final norm of another eps": (
        lambda: changed(encoder(final_norm=True), lambda m: setattr(m.norm, "eps", 0.1)),
        "eps",
    ),
    "double": (lambda: encoder().double(), "float64"),
    "relative positions": (lambda: bert_encoder(position_embedding_type="relative_key"), "relative positions"),
    "bert decoder": (lambda: bert_encoder(is_decoder=True), "decoder"),
    "bert silu": (lambda: bert_encoder(hidden_act="silu"), "activation"),
    "gpt2 unscaled": (lambda: gpt2(scale_attn_weights=False), "does not scale"),
    "gpt2 by layer": (lambda: gpt2(scale_attn_by_inverse_layer_idx=True), "by its number"),
    "gpt2 upcast": (lambda: gpt2(reorder_and_upcast_attn=True), "upcast"),
    "gpt2 cross attention": (lambda: gpt2(add_cross_attention=True), "extra submodule"),
    "gpt2 attention to others": (
        lambda: changed(gpt2(), lambda m: setattr(m.h[1].attn, "is_cross_attention", True)),
        "keys from elsewhere",
    ),
    "gpt2 not causal": (lambda: changed(gpt2(), lambda m: m.h[1].attn.bias.fill_(True)), "not exactly causal"),
    "reference edited": (lambda: EditedReference(reference().config).eval(), "no adapter knows FastEdited"),
    "reference activation": (
        lambda: changed(reference(), lambda m: setattr(m.layers[1], "activation", torch.relu)),
        "activation",
    ),
}


def changed(module, change):
    with torch.no_grad():
        change(module)
    return module


def mixed_encoder():
    module = encoder()
    module.layers[1] = encoder(layers=1, ffn=16).layers[0]
    return module


def add_bias_kv(module):
    attention = module.layers[0].self_attn
    attention.bias_k, attention.bias_v = (nn.Parameter(torch.randn(1, 1, D)) for _ in range(2))


class EditedReference(type(reference())):
    def forward(self, x, mask=None):
        return super().forward(x, mask) + 1


class FastEdited(gnomon.Optimized, EditedReference):
    gnomon_options = {"effort": "estimate"}


@pytest.mark.parametrize("kind", STRUCTURES)
def test_structures_that_are_not_the_librarys(kind, said):
    make, word = STRUCTURES[kind]
    module = make()
    family = BY_NAME[
        "bert" if "bert" in kind or "relative" in kind else kind.split()[0] if "gpt2" in kind else "encoder"
    ]
    if "reference" in kind:
        family = FEW[0]
    x = torch.randn(2, 6, D, dtype=torch.double if kind == "double" else torch.float)
    if kind == "reference edited":
        edited = FastEdited(module.config).eval()
        edited.load_state_dict(module.state_dict())
        with torch.no_grad():
            assert torch.equal(edited(x), module(x))
        assert word in reasons(edited)[0]
        return
    gnomon.optimize(module, effort="estimate")
    for _ in range(3):
        check_falls_back(family, module, x, reason=word)
    assert entry(module)["fallbacks"][0]["count"] == 3
    assert len(said()) == 1 and word in said()[0], "said once"


HF_CALLS = {
    "head_mask": lambda m, x: m(x, head_mask=[torch.ones(1, 4, 1, 1)] * 2),
    "output_attentions": lambda m, x: m(x, output_attentions=True),
    "output_hidden_states": lambda m, x: m(x, output_hidden_states=True),
    "a mask for each query": lambda m, x: m(
        x, attention_mask=torch.zeros(2, 1, 6, 6).masked_fill(torch.rand(6, 6) < 0.3, -1e38)
    ),
    "a mask that is a bias": lambda m, x: m(x, attention_mask=torch.randn(2, 1, 1, 6)),
}


@pytest.mark.parametrize("kind", HF_CALLS)
def test_calls_of_bert_that_want_more(kind):
    module, x = fast(BY_NAME["bert"]), torch.randn(2, 6, D)
    torch.manual_seed(1)
    with torch.no_grad():
        actual = HF_CALLS[kind](module, x)
        assert reasons(module) and entry(module)["answered"] == 0
        torch.manual_seed(1)
        expected = HF_CALLS[kind](gnomon.restore(module), x)
    assert torch.equal(actual[0], expected[0]) and len(actual) == len(expected)


@families
def test_gradients_and_training_are_the_modules_own(family):
    """C25."""
    module, x = fast(family), torch.randn(2, 6, D)
    plain = gnomon.restore(copy.deepcopy(module))
    family.call(module, x, None).square().sum().backward()
    family.call(plain, x, None).square().sum().backward()
    pairs = list(zip(module.parameters(), plain.parameters()))
    assert all(
        (a.grad is None) == (b.grad is None) and (a.grad is None or torch.equal(a.grad, b.grad)) for a, b in pairs
    )
    assert any(a.grad is not None for a, _ in pairs) and "gradients" in reasons(module)[0]
    for m in (module, plain):
        m.train()
    with torch.no_grad():
        torch.manual_seed(5)
        ours = family.call(module, x, None)
        torch.manual_seed(5)
        assert torch.equal(ours, family.call(plain, x, None)) and "training mode" in reasons(module)[-1]
    module.eval()
    check(family, module, x)


def test_an_input_that_wants_gradients_gets_them():
    module = fast(FEW[0]).requires_grad_(False)
    x = torch.randn(2, 6, D, requires_grad=True)
    module(x).sum().backward()
    assert x.grad is not None and "gradients" in reasons(module)[0]
