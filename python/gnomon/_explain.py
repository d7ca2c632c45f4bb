"""What gnomon.explain() shows: who answers for a module, what fell back and why, and the plan of every problem met."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from torch import nn

from ._errors import CallerError
from ._state import State, state_of


class Explanation:
    """str() is for people; as_dict() is plain data, for JSON. One entry for each optimized module inside."""

    def __init__(self, modules: List[Dict[str, Any]]):
        self._modules = modules

    def as_dict(self) -> Dict[str, Any]:
        """{"modules": [{"name", "module", "adapter", "answered", "fallbacks": [{"reason", "count"}], "options",
        "engines": [{"config", "stats"}], "problems": [the library's records]}]}"""
        return {"modules": self._modules}

    def __str__(self) -> str:
        return "\n".join(line for module in self._modules for line in _lines(module))

    __repr__ = __str__


def explain(module: nn.Module) -> Explanation:
    """What Gnomon knows and did for the module and those inside. Runs nothing and plans nothing.

    Raises CallerError when the module is not optimized.
    """
    found = [(name, inner, state_of(inner)) for name, inner in module.named_modules()]
    entries = [_entry(name, inner, state) for name, inner, state in found if state is not None]
    if not entries and not hasattr(type(module), "_gnomon_transparent"):
        raise CallerError(f"explain: {type(module).__name__} is not optimized; call gnomon.optimize(module) first")
    return Explanation(entries or [_entry("", module, None)])


def _entry(name: str, module: nn.Module, state: Optional[State]) -> Dict[str, Any]:
    entry: Dict[str, Any] = {"name": name, "module": type(module).__name__, "adapter": None, "answered": 0}
    entry.update(fallbacks=[], options={}, engines=[], problems=[])
    if state is not None:
        engines = state.engines
        entry["adapter"] = state.adapter.name if state.adapter else None
        entry["answered"] = state.answered
        told = list(state.fallbacks.items())  # at once: other threads may be adding to it
        entry["fallbacks"] = [{"reason": reason, "count": count} for reason, count in told]
        entry["options"] = {name: str(value) for name, value in state.options.items()}
        entry["engines"] = [{"config": engine.config, "stats": engine.stats()} for engine in engines]
        entry["problems"] = [record for engine in engines for record in engine.explain()]
    return entry


def _lines(entry: Dict[str, Any]) -> List[str]:
    title = f"{entry['module']} `{entry['name']}`" if entry["name"] else entry["module"]
    lines = [f"{title}: adapter {entry['adapter'] or '(none)'}, {entry['answered']} calls answered by Gnomon"]
    lines += [f"  own forward ran {f['count']} times: {f['reason']}" for f in entry["fallbacks"]]
    for record in entry["problems"]:
        lines += [f"  {line}" for line in _problem_lines(record)]
    if not entry["answered"] and not entry["fallbacks"]:
        lines.append("  not called yet")
    return lines


def _problem_lines(record: Dict[str, Any]) -> List[str]:
    lines = [record["problem"], f"  plan   {record['winner']}"]
    if record["seconds"] > 0:
        ratio = record["plain_seconds"] / record["seconds"]
        lines.append(f"  time   {record['seconds'] * 1e3:.4g} ms; Gnomon's plain path is {ratio:.2f} times slower")
    lines.append(f"  error  worst element at {record['worst']:.3f} of the contract's limit")
    if record["bound"]:
        lines.append(f"  bound  {record['bound']}")
    if record["budget_exhausted"]:
        untimed = sum(candidate["outcome"] == "untimed" for candidate in record["candidates"])
        lines.append(
            f"  note   planning was cut short after {record['planning_seconds']:.3g} s, {untimed} candidates are untimed; "
            "a budget twice as long plans anew"
        )
    lines += [f"  note   {note}" for note in record["notes"]]
    return lines
