"""The peers: what each is, the environment its process gets, and the memory it will want."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from stack_config import Shape


@dataclass(frozen=True)
class PeerSpec:
    name: str
    title: str
    environment: dict[str, str] = field(default_factory=dict)
    refusal: str = ""  # why it cannot run here


def openblas_openmp() -> Path | None:
    """Debian keeps each OpenBLAS build in a folder of its own: one can be chosen without touching alternatives."""
    folders = sorted(Path("/usr/lib").glob("*/openblas-openmp"))
    return folders[0] if folders else None


def torch_tuned(threads: int) -> PeerSpec:
    folder = openblas_openmp()
    title = "PyTorch tuned (OpenBLAS's OpenMP build, memory kept)"
    if folder is None:
        return PeerSpec(
            "torch_tuned", title, refusal="no OpenMP build of OpenBLAS: apt-get install libopenblas0-openmp"
        )
    # glibc hands large blocks back to the system on every free, and each call would fault them in again (21,000 faults
    # a call on shape 4). So no block is mapped by itself and the heap is never trimmed. A passive wait costs nothing
    # that could be measured.
    return PeerSpec(
        "torch_tuned",
        title,
        {
            "LD_LIBRARY_PATH": str(folder),
            "OMP_NUM_THREADS": str(threads),
            "OMP_WAIT_POLICY": "passive",
            "MALLOC_MMAP_MAX_": "0",
            "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
        },
    )


def all_peers(threads: int) -> dict[str, PeerSpec]:
    specs = [
        PeerSpec("gnomon", "Gnomon"),
        PeerSpec("ort", "ONNX Runtime, its own fused operators"),
        torch_tuned(threads),
        PeerSpec("torch", "PyTorch as it comes"),
    ]
    return {spec.name: spec for spec in specs}


def process_environment(spec: PeerSpec) -> dict[str, str]:
    """The caller's environment without what tunes threads or memory, so that only the table above does."""
    tuning = ("OMP_", "GOMP_", "OPENBLAS_", "MALLOC_", "MKL_", "KMP_")
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(tuning) and name not in ("LD_LIBRARY_PATH", "LD_PRELOAD")
    }
    return base | spec.environment


def memory_estimate(name: str, shape: Shape) -> int:
    """Bytes, from above: input, output, and the tensors that live at once at the worst point of a layer."""
    activation, scores, ffn = shape.activation_bytes, shape.score_bytes, shape.ffn_bytes
    if name == "gnomon":
        return 3 * activation
    if name == "ort":
        return int(2.3 * (8 * activation + max(scores, 2 * ffn)))  # its arena grows by doubling: 17.1 GiB on shape 7
    tensors = 8 * activation + max(3 * scores, 2 * ffn)
    return tensors if name == "torch" else 2 * tensors  # twice: a heap that is never trimmed has holes


def groups(names: list[str], shape: Shape, memory: int) -> tuple[list[list[str]], dict[str, str]]:
    """The sessions in which the peers fit into memory, each with the first peer, which the others are compared to;
    and the peers that fit into none, with the reason."""
    base, *others = names
    sessions, refused = [[base]], {}
    for name in others:
        need = memory_estimate(name, shape)
        alone = memory_estimate(base, shape) + need
        if alone > memory:
            refused[name] = (
                f"memory: it and {base} need about {alone / 2**30:.1f} GiB, {memory / 2**30:.1f} GiB are to be had"
            )
        elif sum(memory_estimate(other, shape) for other in sessions[-1]) + need <= memory:
            sessions[-1].append(name)
        else:
            sessions.append([base, name])
    return sessions, refused
