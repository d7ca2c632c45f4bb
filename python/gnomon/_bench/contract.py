"""The contract on tensors, wherever they are: |u - r| <= abs or |u - r| <= rel * |r|, element by element (docs/contract.md)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_BLOCK = 1 << 24  # elements compared at once: shape 7 has 128 million, and fp64 copies of all would be 4 GB


@dataclass
class Verdict:
    worst: float = 0.0  # in units of the limit; above 1 is out of contract
    out_of_contract: int = 0
    elements: int = 0

    @property
    def holds(self) -> bool:
        return self.worst <= 1.0

    def joined(self, other: "Verdict") -> "Verdict":
        """Of two looks at answers to the same question, the worse."""
        return Verdict(
            max(self.worst, other.worst), max(self.out_of_contract, other.out_of_contract), max(self.elements, other.elements)
        )


def terms(u: torch.Tensor, r: torch.Tensor, abs_limit: float, rel_limit: float) -> torch.Tensor:
    """Each element's error in units of the limit; infinite where NaN and Inf do not match."""
    u, r = u.double(), r.double()
    error = (u - r).abs()
    result = torch.minimum(error / abs_limit, error / (rel_limit * r.abs()))
    result[~torch.isfinite(r) | ~torch.isfinite(u)] = float("inf")
    result[(u == r) | (torch.isnan(u) & torch.isnan(r))] = 0.0
    return result


def judge(u: torch.Tensor, r: torch.Tensor, abs_limit: float, rel_limit: float) -> Verdict:
    if u.shape != r.shape:
        raise ValueError(f"expected an answer of shape {list(r.shape)} (the reference's), got {list(u.shape)}")
    verdict = Verdict(elements=u.numel())
    flat_u, flat_r = u.reshape(-1), r.reshape(-1)
    for start in range(0, u.numel(), _BLOCK):
        block = terms(flat_u[start : start + _BLOCK], flat_r[start : start + _BLOCK], abs_limit, rel_limit)
        verdict.worst = max(verdict.worst, float(block.max()))
        verdict.out_of_contract += int((block > 1.0).sum())
    return verdict
