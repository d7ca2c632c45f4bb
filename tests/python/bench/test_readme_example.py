"""What the README tells someone who comes from PyTorch, run as it stands but for the size of the input."""

import re
from pathlib import Path

README = Path(__file__).resolve().parents[3] / "README.md"


def test_the_readme_example_runs_and_gnomon_answers(tmp_path, library, monkeypatch, capsys):
    monkeypatch.setenv("GNOMON_LIBRARY", str(library.path))
    monkeypatch.setenv("GNOMON_PLAN_DIR", str(tmp_path))
    section = README.read_text(encoding="utf-8").split("## From PyTorch")[1].split("\n## ")[0]
    (code,) = re.findall(r"```python\n(.*?)```", section, re.S)
    small = code.replace("torch.randn(64, 100, 256)", "torch.randn(2, 10, 256)")
    assert small != code
    names = {}
    exec(compile(small, "README.md", "exec"), names)
    assert names["y"].shape == (2, 10, 256)
    assert re.search(r"2 calls answered by Gnomon", capsys.readouterr().out)
