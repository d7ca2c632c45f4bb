"""Bar charts as inline SVG, coloured by the page's own variables so that light and dark both work."""

from __future__ import annotations

import html
from dataclasses import dataclass
from typing import Callable, List, Optional, Tuple

LABEL, BAR_HEIGHT, ROW, WIDTH, VALUE = 250, 16, 26, 900, 240


@dataclass
class Bar:
    label: str
    value: float
    text: str
    kind: str  # ours | reference | other | broken
    low: Optional[float] = None
    high: Optional[float] = None
    hint: str = ""


def bars(title: str, rows: List[Bar], baseline: Optional[Tuple[float, str]] = None) -> str:
    """Horizontal bars from zero, each with its figure beside it; whiskers are the quartiles."""
    if not rows:
        return ""
    longest = max(row.value for row in rows)
    room = WIDTH - LABEL - VALUE

    def x(value: float) -> float:  # a whisker that would leave the chart is cut off
        return LABEL + room * min(value / longest, 1.15)

    height = ROW * len(rows) + 12
    parts = [_baseline(baseline, x, height)] if baseline and baseline[0] <= longest else []
    parts += [_bar(row, 6 + ROW * index, x) for index, row in enumerate(rows)]
    described = html.escape(title)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{described}" preserveAspectRatio="xMinYMin">'
        f"<title>{described}</title>{''.join(parts)}</svg>"
    )


def _baseline(baseline: Tuple[float, str], x: Callable[[float], float], height: int) -> str:
    value, name = baseline
    return (
        f'<line class="baseline" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="0" y2="{height}"><title>{html.escape(name)}</title></line>'
    )


def _bar(row: Bar, top: float, x: Callable[[float], float]) -> str:
    middle, start = top + BAR_HEIGHT / 2, x(0.0)
    width = max(x(row.value) - start, 1.5)
    end = x(max(row.value, row.high or 0.0))
    whisker = ""
    if row.low is not None and row.high is not None:
        whisker = (
            f'<path class="whisker" d="M{x(row.low):.1f} {middle:.1f}H{x(row.high):.1f}'
            f'M{x(row.low):.1f} {middle - 4:.1f}v8M{x(row.high):.1f} {middle - 4:.1f}v8"/>'
        )
    return (
        f'<g><title>{html.escape(row.hint or row.label)}</title>'
        f'<text class="name" x="{LABEL - 8}" y="{middle + 4:.1f}">{html.escape(row.label)}</text>'
        f'<rect class="{row.kind}" x="{start}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}" rx="2"/>{whisker}'
        f'<text class="value" x="{end + 8:.1f}" y="{middle + 4:.1f}">{html.escape(row.text)}</text></g>'
    )
