"""Options as users write them, as the library takes them."""

from __future__ import annotations

import os
from typing import Any, Dict, Mapping, Tuple

from ._engine import make_options
from ._errors import CallerError
from ._library import library

_PADDED_ROWS = ("computed", "any")


def engine_options(options: Mapping[str, Any]) -> Tuple[Dict[str, str], str]:
    """The library's options as text, and padded_rows. Raises CallerError for a name or value that does not exist."""
    rest = dict(options)
    padded_rows = rest.pop("padded_rows", "computed")
    if padded_rows not in _PADDED_ROWS:
        raise CallerError(f"padded_rows is {padded_rows!r}; expected one of {', '.join(_PADDED_ROWS)}")
    if "device" in rest:
        raise CallerError("option device: it is the module's own; move the module instead")
    folder = rest.get("plan_dir")
    if folder is not None and not isinstance(folder, (str, os.PathLike)):
        raise CallerError(f"option plan_dir: expected a path, or None for plans in memory only, got {folder!r}")
    texts = {name: _text(value) for name, value in rest.items()}
    library().dll.gnomon_options_destroy(make_options(texts))
    return texts, padded_rows


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Mapping):  # force={"slices": 4, "fused_qkv": False}
        return ",".join(f"{name}={_text(choice)}" for name, choice in value.items())
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)
