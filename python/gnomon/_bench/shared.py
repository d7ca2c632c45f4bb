"""What the bench has in common with bench/ of the repository: suite, reference module, description of the machine.

They are the same files: a wheel carries copies (cmake/python.cmake), a checkout reads them where they are.
"""

from __future__ import annotations

import sys
from pathlib import Path

_PACKAGED = Path(__file__).resolve().parent / "shared"
_CHECKOUT = Path(__file__).resolve().parents[3] / "bench"

if _PACKAGED.is_dir():
    sys.path.insert(0, str(_PACKAGED))
elif (_CHECKOUT / "suite.json").is_file():
    sys.path[:0] = [str(_CHECKOUT), str(_CHECKOUT / "peers")]
else:
    raise ImportError(f"the bench's suite is missing: expected {_PACKAGED} or {_CHECKOUT}; install the wheel again")

import machine  # noqa: E402
import reference  # noqa: E402
from stack_config import SUITE, Shape, StackConfig, load_suite  # noqa: E402

__all__ = ["SUITE", "Shape", "StackConfig", "commit", "load_suite", "machine", "reference"]


def commit() -> str:
    if not _PACKAGED.is_dir():
        return machine.commit()
    made_from = _PACKAGED / "commit.txt"
    return made_from.read_text().strip() if made_from.is_file() else "unknown"
