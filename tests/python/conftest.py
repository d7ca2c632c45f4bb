"""The tests reach the bench's reference and the C interface's binding where they are: nothing is written twice."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [
    str(ROOT / "python"),
    str(ROOT / "bench"),
    str(ROOT / "bench" / "peers"),
    str(ROOT / "tools"),
    str(Path(__file__).resolve().parent),
]

import gnomon_ctypes


@pytest.fixture(scope="session")
def library() -> gnomon_ctypes.Library:
    """libgnomon.so of this build, or the one that GNOMON_LIBRARY names; a missing one is an error, never a skip."""
    return gnomon_ctypes.Library()
