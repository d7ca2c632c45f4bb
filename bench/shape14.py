#!/usr/bin/env python3
"""Shape 14 (b32 s100000 d1024) through the drop-in, in place and with little memory beside the tensor: time of a pass, the most device
memory at once, the answer's mean and deviation, and two checks against the fp32 reference: the first rows of every sequence, which
depend on the first rows only, and one whole sequence.

In fp16 the tensor takes 6.1 GiB and fits a 12 GB card with its scratch. In fp32 the tensor alone (12.2 GiB) is more than such a card has,
so that limit must be refused there.
"""

import argparse
import json
import threading
import time
from pathlib import Path

import torch

import gnomon
from gnomon._bench import device
from gnomon._bench.contract import judge
from gnomon._bench.shared import commit, load_suite
from gnomon._bench.work import DTYPES, Setting, Work

GIB = 1 << 30
CARD = int(11.99 * GIB)  # what a card sold as 12 GB shows
BESIDE = {"f16": 2 * GIB, "f32": 5 * GIB // 2}  # the tensor: for weights and scratch
CALLS = 3
QUERIES = 256  # whose scores are stored at once: 1.6 GB of them


class Peak:
    """The most device memory in use at once, whoever took it."""

    def __enter__(self):
        self.most, self.stop = 0, threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def watch(self):
        while not self.stop.is_set():
            free, total = torch.cuda.mem_get_info()
            self.most = max(self.most, total - free)
            time.sleep(0.02)

    def __exit__(self, *_):
        self.stop.set()
        self.thread.join()


def timed(model, x) -> float:
    torch.cuda.synchronize()
    start = time.perf_counter()
    gnomon.forward(model, x, out=x)
    torch.cuda.synchronize()
    return time.perf_counter() - start


def whole_sequence(module, x: torch.Tensor) -> torch.Tensor:
    """The reference's answer to x [1, S, d_model], its scores made for some queries at a time; causal and post-norm only."""
    config = module.config
    assert config.causal and config.norm == "post" and not config.final_norm
    seq = x.shape[1]
    for layer in module.layers:
        attn = layer.attn
        q, k, v = (attn.split(part(x)) for part in (attn.q_proj, attn.k_proj, attn.v_proj))
        heads = torch.empty_like(q)
        for first in range(0, seq, QUERIES):
            last = min(first + QUERIES, seq)
            scores = q[:, :, first:last] @ k[:, :, :last].transpose(-2, -1) / config.head_dim**0.5
            future = torch.arange(last, device=x.device) > torch.arange(first, last, device=x.device)[:, None]
            heads[:, :, first:last] = torch.softmax(scores.masked_fill(future, float("-inf")), -1) @ v[:, :, :last]
        x = layer.norm1(x + attn.out_proj(heads.transpose(1, 2).reshape(x.shape)))
        x = layer.norm2(x + layer.feed_forward(x))
    return x


def moments(x: torch.Tensor) -> "tuple[float, float]":
    """Of all elements, sequence by sequence: a copy of the whole in another type would not fit the card."""
    sums = torch.stack([torch.stack([s.double().sum(), s.double().square().sum()]) for s in x]).sum(0) / x.numel()
    mean, square = sums.tolist()
    return mean, (square - mean * mean) ** 0.5


def refusal(module, x) -> str:
    """What is said when the tensor does not fit the card."""
    try:
        gnomon.forward(gnomon.optimize(module, memory_limit=str(CARD)), x, out=x)
    except gnomon.CallerError as error:
        return " ".join(str(error).split("\n")[:3])  # what it is about, and the first candidates' figures
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("f16", "f32"), default="f16")
    parser.add_argument("--id", type=int, default=14, help="another shape, to try this out")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()

    limits, shapes = load_suite()
    shape = next(shape for shape in shapes if shape.id == options.id)
    setting = Setting(torch.device("cuda", 0), DTYPES[options.dtype], "none", 0, {n: limits[n] for n in ("abs", "rel")}, {})
    work = Work(shape, setting)
    torch.cuda.empty_cache()
    tensor = work.x.numel() * work.x.element_size()
    limit = tensor + BESIDE[options.dtype]
    fits_card = limit <= CARD
    with torch.inference_mode():
        plain = work.module_copy().float()
        sequence = whole_sequence(plain, work.x[:1].float())
        del plain
        torch.cuda.empty_cache()
        refused = "" if fits_card else refusal(work.module, work.x)
        model = gnomon.optimize(work.module, memory_limit=str(limit))
        free, total = torch.cuda.mem_get_info()
        before = total - free  # the context, the tensor, the reference's answers
        with Peak() as planning_peak:
            first = timed(model, work.x)
        verdict = work.judge(work.x)
        whole = judge(work.x[:1], sequence, limits["abs"], limits["rel"])
        mean, deviation = moments(work.x)
        torch.cuda.empty_cache()
        with Peak() as peak:
            later = [timed(model, work.x) for _ in range(CALLS)]  # of its own answers: the time does not depend on them
    explanation = gnomon.explain(model)
    answered = sum(entry["answered"] for entry in explanation.as_dict()["modules"])
    results = {
        "about": "Shape 14 in place by the drop-in, its memory limited; bench/shape14.py wrote it.",
        "gnomon": gnomon.__version__,
        "commit": commit(),
        **device.describe(setting),
        "problem": shape.problem,
        "dtype": options.dtype,
        "memory_limit": limit,
        "card_bytes": CARD,
        "device_bytes_before": before,
        "peak_device_bytes": peak.most,
        "peak_device_bytes_while_planning": planning_peak.most,
        "first_call_seconds": first,
        "seconds": later,
        "judged_rows": work.judged_rows,
        "worst": verdict.worst,
        "worst_of_a_whole_sequence": whole.worst,
        "mean": mean,
        "standard_deviation": deviation,
        "refused_within_the_card": refused,
        "answered": answered,
        "explain": str(explanation),
    }
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(f"{shape.problem} {options.dtype}: {min(later):.3f} s (first call {first:.1f} s), {(peak.most - before) / GIB:.2f} GiB "
          f"beside the tensor of {tensor / GIB:.2f}, {(planning_peak.most - before) / GIB:.2f} while planning, worst {verdict.worst:.3f} over the first {work.judged_rows} rows")  # fmt: skip
    print(results["explain"])
    print(f"worst {whole.worst:.3f} over all of one sequence; mean {mean:.4f}, standard deviation {deviation:.4f}")
    if refused:
        print(f"with the memory of the card: {refused}")
    right = verdict.holds and whole.holds and abs(mean) < 0.05 and abs(deviation - 1) < 0.05
    return 0 if right and (fits_card or refused) and answered == CALLS + 1 else 1


if __name__ == "__main__":
    raise SystemExit(main())
