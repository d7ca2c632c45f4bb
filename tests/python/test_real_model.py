"""A published model with its real weights: Gnomon's answer against PyTorch's own, on real sentences with padding."""

import json

import numpy as np
import pytest
import torch

import contract
import gnomon_ctypes
from support.minilm import MiniLM, sentence_vectors

SENTENCES = [
    "A man is playing a guitar on the stage.",
    "Someone performs music with a guitar.",
    "The stock market fell sharply on Monday after the central bank raised interest rates by half a point.",
    "Share prices dropped when borrowing became more expensive.",
    "Hi!",
    "The naïve café owner's résumé — 42 pages, naturally — wasn't read by anyone; nevertheless she got the job, "
    "hired three cooks, repainted the façade and, within a year, had the best-known kitchen in the whole old town.",
]
RELATED = [(0, 1), (2, 3)]
UNRELATED = [(0, 2), (0, 3), (1, 2), (1, 3)]


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


@pytest.fixture(scope="module")
def plan_folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("plans"))


def make_engine(library, model, plan_folder) -> gnomon_ctypes.Engine:
    weights = gnomon_ctypes.Weights.from_safetensors(library, model.weights_file)
    return gnomon_ctypes.Engine(library, weights, plan_dir=plan_folder, budget="2")


def check(library, model, plan_folder, sentences, length=None, masked=True) -> tuple[np.ndarray, dict]:
    """One batch through a new engine; the output, judged in every element, and the engine's counters."""
    ids, mask = model.batch(sentences, length)
    x = model.embed(ids)
    expected = model.encode(x, mask if masked else None).numpy()
    engine = make_engine(library, model, plan_folder)
    actual = engine.forward(x.numpy(), mask.numpy() if masked else None)
    verdict = contract.compare(actual, expected)
    assert verdict.holds, f"batch {tuple(x.shape)}: {verdict}"
    return actual, engine.stats()


def test_tokenizer_knows_the_published_examples(model):
    tokens = model.tokenizer.tokens
    assert tokens("unaffable") == ["[CLS]", "una", "##ffa", "##ble", "[SEP]"]
    assert tokens("Don't naïve!") == ["[CLS]", "don", "'", "t", "naive", "!", "[SEP]"]
    assert model.tokenizer.encode("hello world") == [101, 7592, 2088, 102]
    assert tokens("\U0001f995") == ["[CLS]", "[UNK]", "[SEP]"]


def test_config_is_read_from_the_file_beside_the_weights(library, model):
    config = gnomon_ctypes.Weights.from_safetensors(library, model.weights_file).config().split()
    assert {"d384", "h12", "l6", "f1536", "bi", "post", "gelu", "eps=1e-12"} <= set(config)


@pytest.mark.parametrize(
    "sentences, length, masked",
    [
        (SENTENCES, None, True),  # six lengths in one batch
        (SENTENCES[:3], 40, True),  # every sentence padded
        (SENTENCES[4:5], None, True),  # one sentence of four tokens, a mask that hides nothing
        (SENTENCES[4:5], None, False),  # the same without a mask
        (SENTENCES[5:], 64, True),
        (SENTENCES[:2] * 8, None, True),
    ],
    ids=["six", "padded", "short", "short-unmasked", "long", "sixteen"],
)
def test_states_agree_with_pytorch_cold_and_warm(library, model, plan_folder, tmp_path, sentences, length, masked):
    cold, cold_stats = check(library, model, str(tmp_path), sentences, length, masked)
    warm, warm_stats = check(library, model, str(tmp_path), sentences, length, masked)
    assert cold_stats["problems_planned"] == 1
    assert warm_stats["store_hits"] == 1 and warm_stats["problems_planned"] == 0
    assert np.array_equal(cold, warm), "the stored plan gave other bits than the plan it came from"


def test_padding_never_changes_a_sentence(library, model, plan_folder):
    alone, _ = check(library, model, plan_folder, SENTENCES[:1])
    padded, _ = check(library, model, plan_folder, SENTENCES[:1], length=alone.shape[1] + 21)
    assert contract.compare(padded[:, : alone.shape[1]], alone).holds


def test_similar_sentences_are_near_and_cosines_agree(library, model, plan_folder):
    ids, mask = model.batch(SENTENCES)
    x = model.embed(ids)
    states = make_engine(library, model, plan_folder).forward(x.numpy(), mask.numpy())
    ours = sentence_vectors(torch.from_numpy(states), mask)
    theirs = sentence_vectors(model.encode(x, mask), mask)
    similarity = ours @ ours.T
    assert torch.allclose(similarity, theirs @ theirs.T, atol=1e-4)
    nearest_unrelated = max(similarity[pair].item() for pair in UNRELATED)
    for pair in RELATED:
        assert similarity[pair].item() > nearest_unrelated + 0.2, json.dumps(similarity.tolist())
