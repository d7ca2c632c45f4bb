"""The contract on numpy arrays: u is right when |u - r| <= abs or |u - r| <= rel * |r|, element by element."""

from dataclasses import dataclass

import numpy as np

BLOCK = 1 << 22  # elements compared at once: shape 7 has 128 million, and float64 copies of all would be 4 GB


@dataclass
class Verdict:
    worst: float = 0.0  # in units of the limit; above 1 is out of contract
    out_of_contract: int = 0
    elements: int = 0
    max_abs_error: float = 0.0

    @property
    def holds(self) -> bool:
        return self.worst <= 1.0


def terms(u: np.ndarray, r: np.ndarray, abs_limit: float, rel_limit: float) -> np.ndarray:
    """Each element's error in units of the limit; infinite where NaN and Inf do not match."""
    with np.errstate(all="ignore"):
        error = np.abs(u - r)
        result = np.minimum(error / abs_limit, error / (rel_limit * np.abs(r)))
    result[~np.isfinite(r) | ~np.isfinite(u)] = np.inf
    result[(u == r) | (np.isnan(u) & np.isnan(r))] = 0.0
    return result


def compare(u: np.ndarray, r: np.ndarray, abs_limit: float = 0.002, rel_limit: float = 0.02) -> Verdict:
    if u.shape != r.shape:
        raise ValueError(f"expected an output of shape {r.shape} (the reference's), got {u.shape}")
    verdict = Verdict(elements=u.size)
    flat_u, flat_r = u.reshape(-1), r.reshape(-1)
    for start in range(0, u.size, BLOCK):
        block_u = flat_u[start : start + BLOCK].astype(np.float64)
        block_r = flat_r[start : start + BLOCK].astype(np.float64)
        block = terms(block_u, block_r, abs_limit, rel_limit)
        verdict.worst = max(verdict.worst, float(block.max()))
        verdict.out_of_contract += int((block > 1.0).sum())
        with np.errstate(invalid="ignore"):
            error = np.abs(block_u - block_r)
        if np.isfinite(error).any():
            verdict.max_abs_error = max(verdict.max_abs_error, float(error[np.isfinite(error)].max()))
    return verdict
