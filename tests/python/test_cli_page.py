"""docs/cli.md's way from an nn.TransformerEncoder to a file that `gnomon run` reads: the command line answers as PyTorch does."""

import os
import re
import subprocess
from pathlib import Path

import numpy
import torch
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("GNOMON_BUILD", ROOT / "build" / "release"))
EXAMPLE = r"<!-- example: encoder to file -->\n```python\n(.*?)```"


def test_an_encoder_travels_to_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 4, 1024, activation="gelu", batch_first=True), 3).eval()
    for parameter in model.parameters():  # biases and norms are not 0 and 1
        parameter.data.add_(0.02 * torch.randn_like(parameter))
    exec(re.search(EXAMPLE, (ROOT / "docs" / "cli.md").read_text(), re.S).group(1), {"model": model})
    x, valid = torch.randn(2, 9, 256), torch.ones(2, 9, dtype=torch.bool)
    valid[1, 5:] = False
    numpy.save("x.npy", x.numpy())
    numpy.save("valid.npy", valid.numpy())
    words = "run model.safetensors -i x.npy -m valid.npy -o y.npy --effort estimate --plan-dir".split()
    subprocess.run([str(BUILD / "gnomon"), *words, ""], check=True, timeout=120)
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=~valid)
    assert torch.allclose(torch.from_numpy(numpy.load("y.npy"))[valid], expected[:, :9][valid], rtol=0, atol=1e-3)
