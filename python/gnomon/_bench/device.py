"""What the figures were measured on, and how."""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
from importlib import metadata
from typing import Any, Dict, Optional

import torch

from .session import MINIMUM_ROUNDS, SETTLE
from .shared import machine
from .work import Setting

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                    "OPENBLAS_CORETYPE", "KMP_BLOCKTIME", "LD_PRELOAD")  # fmt: skip


def _driver() -> Optional[str]:
    try:
        done = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    lines = done.stdout.split()
    return lines[0] if done.returncode == 0 and lines else None


def _gpu(device: torch.device) -> Dict[str, Any]:
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
    }


def _version(package: str) -> Optional[str]:
    if importlib.util.find_spec(package) is None:
        return None
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _blas() -> str:
    """What does PyTorch's products on the CPU: MKL where it is built in, else what is mapped and is not another package's."""
    if torch.backends.mkl.is_available():
        return "MKL"
    names = [os.path.basename(path) for path in machine.loaded_blas() if "numpy" not in path and "scipy" not in path]
    own = [name for name in names if not name.startswith(("libblas.", "libcublas"))]  # Debian's libblas.so.3 hands on
    return ", ".join(own or names) or "unknown"


def describe(setting: Setting) -> Dict[str, Any]:
    if not setting.cuda:
        torch.ones(64, 64) @ torch.ones(64, 64)  # so that a BLAS that is loaded late is listed
    return {
        "device": _gpu(setting.device) if setting.cuda else {"name": machine.cpu_fields().get("model name", "CPU")},
        "machine": machine.describe(),
        "torch": {
            "version": torch.__version__,
            "threads": torch.get_num_threads(),
            "interop_threads": torch.get_num_interop_threads(),
            "blas": _blas(),
            "triton": _version("triton"),
            "variables": {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ},
        },
    }


def protocol(setting: Setting, options: argparse.Namespace) -> Dict[str, Any]:
    return {
        "device": str(setting.device),
        "dtype": str(setting.dtype)[6:],
        "mask": setting.mask,
        "seed": setting.seed,
        "rounds": options.rounds,
        "minimum_rounds": MINIMUM_ROUNDS,
        "slot_seconds": options.slot,
        "pause_seconds": SETTLE,
        "budget_seconds": options.budget,
        "gnomon_options": {name: str(value) for name, value in setting.gnomon_options.items()},
        "figures": "medians and quartiles over rounds; ratios taken round by round; one process, PyTorch as it comes; "
        "peers take turns in changing order, with a pause between them for the threads of the one before to stop spinning",
        "seconds": "device events around back-to-back calls" if setting.cuda else "wall clock of single calls",
    }
