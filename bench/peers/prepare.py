"""Writes the weights, the input and the reference's answer of one shape: the same for every peer.

usage: prepare.py SHAPE_JSON FOLDER SEED
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

import safetensors_io
from reference import Reference
from stack_config import Shape, StackConfig

SLICE_BYTES = 256 << 20  # of scores: the oracle goes through the batch in slices, since sequences do not meet


def main(shape_json: str, folder: str, seed: str) -> None:
    fields = json.loads(shape_json)
    shape = Shape(**fields | {"config": StackConfig(**fields["config"])})
    torch.manual_seed(int(seed))
    module = Reference(shape.config).eval()
    safetensors_io.save(
        Path(folder, "weights.safetensors"), {name: t.numpy() for name, t in module.state_dict().items()}
    )
    x = torch.randn(shape.batch, shape.seq, shape.config.d_model)
    np.save(Path(folder, "input.npy"), x.numpy())
    count = max(1, SLICE_BYTES * shape.batch // shape.score_bytes)
    with torch.inference_mode():
        for start in range(0, shape.batch, count):
            x[start : start + count] = module(x[start : start + count])
    np.save(Path(folder, "reference.npy"), x.numpy())


if __name__ == "__main__":
    main(*sys.argv[1:])
