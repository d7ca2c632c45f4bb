"""The nine countermeasures written in PyTorch, as an expert would: what a fast forward pass costs by hand.

Scores never stored and the causal half skipped (SDPA's flag); a mask that hides nothing left out; Q, K and V in one product; residual +
LayerNorm + cast in one Triton kernel; GELU in the product's epilogue; the whole pass in one CUDA graph at fixed addresses; slices through the
stack; 16-bit products with the residual stream in fp32. What the machine or the installed PyTorch does not have is done the
next best way, and the row says so. The number of slices and the precision are tried out on the work, as the expert would.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Callable, ContextManager, List, Optional, Tuple

import torch
from torch.nn import functional as F

from ..clock import clock_for
from ..shared import Shape
from ..statistics import median
from ..text import count
from ..work import CannotRun, Setting, Work, eager_bytes, lean_bytes
from .by_hand_parts import Norms, Packed, attention, feed_forward_up
from .peer import HAS_SDPA, Peer, Ready, all_cores

TRIAL_CALLS = 3
LONG_CALL = 0.5  # seconds: such a call is tried once
SLICES = {True: (1, 2, 4, 32), False: (1, 2, 4, 16, 64)}  # by: is it a CUDA device


class Pass:
    """One way to do it: a precision and a number of slices. Post-norm stacks without a mask that hides anything."""

    def __init__(self, work: Work, half: Optional[torch.dtype], slices: int):
        self.work, self.half, self.slices = work, half, slices
        self.dtype = half or torch.float32
        self.layers = [Packed(layer, self.dtype) for layer in work.module.layers]
        self.norms = Norms(work.setting, self.dtype, work.shape.config.eps)
        self.bias = None
        if not HAS_SDPA and work.shape.config.causal:
            future = torch.full((work.shape.seq, work.shape.seq), float("-inf"), dtype=self.dtype)
            self.bias = future.triu(1).to(work.setting.device)
        self.out = torch.empty_like(work.x, dtype=torch.float32)

    def stack(self, x: torch.Tensor) -> torch.Tensor:
        batch, seq, d = x.shape
        config = self.work.shape.config
        residual = x.reshape(-1, d).float()
        h = residual.to(self.dtype)
        for layer in self.layers:
            qkv = F.linear(h, layer.qkv_weight, layer.qkv_bias).view(batch, seq, 3, config.n_heads, d // config.n_heads)
            heads = attention(*qkv.permute(2, 0, 3, 1, 4), causal=config.causal, bias=self.bias)
            joined = heads.transpose(1, 2).reshape(batch * seq, d)
            residual, h = self.norms(residual, F.linear(joined, layer.out_weight, layer.out_bias), layer.norm1)
            up = feed_forward_up(h, layer, config.activation)
            residual, h = self.norms(residual, F.linear(up, layer.down_weight, layer.down_bias), layer.norm2)
        return residual.view(batch, seq, d)

    def run(self) -> torch.Tensor:
        with torch.inference_mode():
            if self.slices == 1:
                return self.stack(self.work.x)
            for source, target in zip(self.work.x.chunk(self.slices), self.out.chunk(self.slices)):
                target.copy_(self.stack(source))
            return self.out

    def name(self) -> str:
        precision = f"{str(self.half)[6:]} with fp32 residual" if self.half else "fp32"
        return f"{precision}, slices {self.slices}"


def captured(run: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], torch.Tensor]:
    """The pass as one CUDA graph; its answer lies at one address and is overwritten by the next replay. A graph holds addresses, not
    tensors: whoever replays it keeps `run`, and with it the weights, alive."""
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        answer = run()

    def replay(kept: Callable[[], torch.Tensor] = run) -> torch.Tensor:
        graph.replay()
        return answer

    return replay


def precisions(setting: Setting) -> List[Optional[torch.dtype]]:
    if setting.cuda:
        return [torch.float16]
    return [None, torch.bfloat16] if HAS_SDPA else [None]  # before 2.0 the CPU's bf16 products were slow


def seconds_of(run: Callable[[], torch.Tensor], work: Work) -> float:
    clock = clock_for(work.setting.device)
    first = clock.once(run)
    return first if first > LONG_CALL else median([clock.once(run) for _ in range(TRIAL_CALLS)])


def best(work: Work) -> Tuple[Pass, Callable[[], torch.Tensor]]:
    """Of all ways that fit into memory, the fastest inside the contract; the fastest when none is. Losers go at once."""
    chosen: Optional[Tuple[Tuple[bool, float], Pass, Callable[[], torch.Tensor]]] = None
    failure = "no number of slices fits the batch"
    counts = [n for n in SLICES[work.setting.cuda] if n <= work.shape.batch]
    for half in precisions(work.setting):
        last = float("inf")
        for slices in counts:
            try:
                candidate = Pass(work, half, slices)
                run = captured(candidate.run, work.setting.device) if work.setting.cuda else candidate.run
                seconds = seconds_of(run, work)
                rank = not work.judge(run()).holds, seconds
            except RuntimeError as error:  # out of memory, mostly: more slices need less
                failure = str(error).splitlines()[0]
                continue
            if chosen is None or rank < chosen[0]:
                chosen = rank, candidate, run
            if seconds > last:  # more slices will not turn it
                break
            last = seconds
    if chosen is None:
        raise CannotRun(failure)
    return chosen[1], chosen[2]


def build(work: Work) -> Ready:
    config = work.shape.config
    if config.norm != "post" or config.final_norm or not config.bias:
        raise CannotRun(f"written for the suite's post-norm stacks with biases; this one is {config.grammar()}")
    around: Callable[[], ContextManager[None]] = nullcontext
    with (nullcontext if work.setting.cuda else all_cores)():
        chosen, run = best(work)
        on_all_cores = seconds_of(run, work)
    notes = [chosen.name(), *chosen.norms.notes]
    if not work.setting.cuda:
        if seconds_of(run, work) > on_all_cores:
            around = all_cores
        with around():
            notes.append(count(torch.get_num_threads(), "thread"))
    if not HAS_SDPA:
        notes.append("attention by baddbmm and softmax: no SDPA before PyTorch 2.0")
    if work.setting.cuda:
        notes.append("one CUDA graph at fixed addresses; tanh GELU in the epilogue (an approximation of the module's erf)")
    if work.mask is not None:
        notes.append("the mask was looked at once, hides nothing, and is left out")
    return Ready(run, notes, around=around)


def _bytes(shape: Shape, setting: Setting) -> int:
    """In its most slices."""
    slices = max(n for n in SLICES[setting.cuda] if n <= shape.batch)
    return shape.activation_bytes + (lean_bytes(shape, 4) if HAS_SDPA else eager_bytes(shape, 4)) // slices


PEERS = [Peer("by-hand", "the nine countermeasures by hand in PyTorch", build, bytes=_bytes)]
