"""The benchmark: `python -m gnomon.bench` (or `gnomon bench-torch`). See gnomon/_bench."""

import sys

from ._bench.command import main

if __name__ == "__main__":
    sys.exit(main())
