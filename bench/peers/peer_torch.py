"""The PyTorch reference module, eager. "Tuned" and "as it comes" differ in their environment alone (see compare.py)."""

from pathlib import Path

import numpy as np
import torch

import machine
import safetensors_io
from reference import Reference


class Peer:
    def __init__(self, settings: dict):
        torch.set_num_threads(settings["threads"])

    def about(self) -> dict:
        torch.ones(64, 64) @ torch.ones(64, 64)  # so that whatever is loaded late is loaded
        return {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "blas": machine.loaded_blas(),
            "cpu_capability": torch.__config__.show().partition("CPU capability usage: ")[2].split("\n")[0],
        }

    def load(self, shape, weights: Path, x: np.ndarray, out: np.ndarray) -> dict:
        module = Reference(shape.config)
        module.load_state_dict(
            {name: torch.from_numpy(np.array(t)) for name, t in safetensors_io.load(weights).items()}
        )
        module.eval()
        source, self.target = torch.from_numpy(x), torch.from_numpy(out)

        def run() -> None:
            with torch.inference_mode():
                self.result = module(source)

        self.run = run
        return {}

    def publish(self) -> None:
        """PyTorch allocates its own output; it is copied out once, outside of the timing."""
        self.target.copy_(self.result)
