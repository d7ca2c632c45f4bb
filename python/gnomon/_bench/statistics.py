"""Medians, quartiles and paired ratios."""

from __future__ import annotations

import math
from typing import Dict, List, Sequence


def quantile(values: Sequence[float], share: float) -> float:
    """Between the neighbours where it falls between two values."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def median(values: Sequence[float]) -> float:
    return quantile(values, 0.5)


def spread(values: Sequence[float]) -> Dict[str, float]:
    return {"low": quantile(values, 0.25), "median": median(values), "high": quantile(values, 0.75)}


def paired(times: Sequence[float], others: Sequence[float]) -> List[float]:
    """times / others, round by round: what slows one round down slows both."""
    if len(times) != len(others):
        raise ValueError(f"expected as many rounds of one as of the other, got {len(times)} and {len(others)}")
    return [t / o for t, o in zip(times, others)]


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))
