"""One shape's work: module, input, mask, and the fp32 reference's answer to judge by, all on the device."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Dict, Optional

import torch

from .contract import Verdict, judge
from .shared import Shape, machine, reference

GIB = 1 << 30
MEMORY_SHARE = 0.9
TRUTH_SCORES = 256 << 20  # bytes of scores at once while the reference's answer is made, sequence by sequence
LEADING_ROWS = 2048  # of a causal stack whose scores do not fit: the first rows depend on the first rows only
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


class CannotRun(RuntimeError):
    """Why a peer has no figure here; said in its row."""


@dataclass
class Setting:
    device: torch.device
    dtype: torch.dtype
    mask: str  # none | all: a padding mask that hides nothing
    seed: int
    limits: Dict[str, float]
    gnomon_options: Dict[str, Any]

    @property
    def cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def half(self) -> torch.dtype:
        """The 16-bit type that products are fast in."""
        return torch.float16 if self.cuda else torch.bfloat16

    @property
    def half_name(self) -> str:
        return "fp16" if self.cuda else "bf16"


def available_memory(device: torch.device) -> int:
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return machine.memory("MemAvailable")


def eager_bytes(shape: Shape, size: int) -> int:
    """Of the plain module, from above: the tensors that live at once at the worst point of a layer (bench/peers/peers.py)."""
    activation, scores, ffn = (size * n // 4 for n in (shape.activation_bytes, shape.score_bytes, shape.ffn_bytes))
    return 8 * activation + max(3 * scores, 2 * ffn) + shape.seq * shape.seq


def lean_bytes(shape: Shape, size: int) -> int:
    """Of a form that stores no scores."""
    return size * (8 * shape.activation_bytes + 2 * shape.ffn_bytes) // 4


def too_large(shape: Shape, setting: Setting) -> Optional[str]:
    """Why the shape cannot even be set up here, with what the plain module would need; None when it can."""
    need, free = 3 * shape.activation_bytes, available_memory(setting.device)
    if need <= MEMORY_SHARE * free:
        return None
    plain = eager_bytes(shape, 4)
    return (
        f"memory: input, output and the answer to judge by need {need / GIB:.1f} GiB, {free / GIB:.1f} GiB are free; "
        f"the reference would need about {plain / GIB:,.0f} GiB"
    )


class Work:
    def __init__(self, shape: Shape, setting: Setting):
        self.shape, self.setting = shape, setting
        generator = torch.Generator(setting.device).manual_seed(setting.seed)
        torch.manual_seed(setting.seed)
        module = reference.Reference(shape.config).eval()
        self.module = module.to(device=setting.device, dtype=setting.dtype)
        size = (shape.batch, shape.seq, shape.config.d_model)
        self.x = torch.randn(size, generator=generator, device=setting.device, dtype=setting.dtype)
        self.mask: Optional[torch.Tensor] = None
        if setting.mask == "all":
            self.mask = torch.ones(size[:2], dtype=torch.bool, device=setting.device)
        self.truth = self._truth()

    @property
    def judged_rows(self) -> int:
        return self.truth.shape[1]

    def module_copy(self) -> Any:
        return copy.deepcopy(self.module)

    def _truth(self) -> torch.Tensor:
        """The fp32 reference's answer, by slices of the batch (sequences do not meet), of as many rows as fit."""
        shape, plain = self.shape, self.module_copy().float()
        rows = shape.seq
        one = 3 * shape.score_bytes // shape.batch
        if one > MEMORY_SHARE * available_memory(self.setting.device):
            if not shape.config.causal:
                raise CannotRun(f"memory: the reference needs {one / GIB:.1f} GiB for the scores of one sequence")
            rows = LEADING_ROWS
        scores = 4 * shape.config.n_heads * rows * rows
        step = max(1, TRUTH_SCORES // scores)
        answer = torch.empty(shape.batch, rows, shape.config.d_model, device=self.setting.device)
        with torch.inference_mode():
            for start in range(0, shape.batch, step):
                part = slice(start, start + step)
                mask = None if self.mask is None else self.mask[part, :rows]
                answer[part] = plain(self.x[part, :rows].float(), mask)
        return answer

    def judge(self, answer: torch.Tensor) -> Verdict:
        if answer.shape != self.x.shape:
            raise ValueError(f"expected an answer of shape {list(self.x.shape)}, got {list(answer.shape)}")
        limits = self.setting.limits
        return judge(answer[:, : self.judged_rows], self.truth, limits["abs"], limits["rel"])
