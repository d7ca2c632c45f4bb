"""examples/embed_sentences.py as a user runs it: real sentences, the published model."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def test_sentences_are_embedded_alike_and_gnomon_answers(tmp_path, library):
    command = [sys.executable, ROOT / "examples" / "embed_sentences.py", "--repeats", "1", "--plan-dir", tmp_path]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "python"), "GNOMON_LIBRARY": str(library.path)}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    gap = float(re.search(r"apart by (\S+) at most", done.stdout).group(1))
    assert 0.0 < gap <= 1e-4  # 0 would say that nothing but PyTorch ran
    assert "Someone performs music with a guitar." in done.stdout
    assert re.search(r"through Gnomon: \d+ sentences a second", done.stdout)
