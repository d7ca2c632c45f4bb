"""The command line from outside: what it prints, where, and with which exit code."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GNOMON_BUILD", ROOT / "build" / "release"))


class CommandLine:
    def __init__(self, folder):
        self.folder = folder
        self.environment = {**os.environ, "GNOMON_PLAN_DIR": str(folder / "plans"), "GNOMON_KERNEL_CACHE": str(folder / "kernels")}

    def __call__(self, *words, code=0, **options):
        done = subprocess.run([str(BUILD / "gnomon"), *map(str, words)], capture_output=True, text=True, cwd=self.folder,
                              env=self.environment, timeout=300, **options)
        assert done.returncode == code, f"exit code {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *words, **options):
        return json.loads(self(*words, **options).stdout)


@pytest.fixture
def gnomon(tmp_path):
    return CommandLine(tmp_path)
