"""`python -m gnomon` and the console script `gnomon`: the wheel's command line, and what only Python has.

  gnomon bench-torch [ARGS]   the drop-in against PyTorch (python -m gnomon.bench)
  gnomon info                 as the command line's, and where Python finds what
  gnomon ANYTHING ELSE        the command line itself: bench, run, explain, verify, plans, ...
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import List, NoReturn, Optional

import torch

import gnomon

_PACKAGE = Path(__file__).resolve().parent


def program() -> Optional[Path]:
    """The command line: the wheel's, else a checkout's build."""
    places = [_PACKAGE / "bin" / "gnomon", _PACKAGE.parents[1] / "build" / "release" / "gnomon"]
    return next((place for place in places if os.access(place, os.X_OK)), None)


def _run_program(arguments: List[str]) -> NoReturn:
    path = program()
    if path is None:
        print(f"gnomon: no command line in {_PACKAGE / 'bin'}: install the wheel, or build it (./run build)", file=sys.stderr)
        raise SystemExit(3)
    os.execv(path, [str(path), *arguments])


def _info() -> int:
    path = program()
    status = subprocess.run([str(path), "info"]).returncode if path is not None else 3
    print(f"python     {platform.python_version()}, PyTorch {torch.__version__}, package {gnomon.__version__}")
    try:
        print(f"library    {gnomon.library_path()}")
    except gnomon.GnomonError as error:
        print(f"library    {error}")
        return 3
    return status


def main(arguments: Optional[List[str]] = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["bench-torch"]:
        from ._bench.command import main as bench

        return bench(arguments[1:])
    if arguments == ["info"]:
        return _info()
    if arguments in ([], ["-h"], ["--help"]):
        print(__doc__, flush=True)
        arguments = ["--help"]
    _run_program(arguments)


if __name__ == "__main__":
    sys.exit(main())
