"""What the figures were measured on: the processor, the system, the libraries really loaded, the commit."""

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def cpu_fields() -> dict[str, str]:
    fields = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if not line.strip():
            break
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    return fields


def cores() -> int:
    return len(os.sched_getaffinity(0))


def memory(field: str) -> int:
    """A field of /proc/meminfo in bytes."""
    return int(re.search(rf"^{field}:\s+(\d+)", Path("/proc/meminfo").read_text(), re.M).group(1)) * 1024


def peak_memory() -> int:
    """The largest resident size this process has had, in bytes."""
    return int(re.search(r"^VmHWM:\s+(\d+)", Path("/proc/self/status").read_text(), re.M).group(1)) * 1024


def loaded_blas() -> list[str]:
    """The BLAS libraries mapped into this process: the truth, whatever was configured."""
    paths = {
        os.path.realpath(line.split()[-1])
        for line in Path("/proc/self/maps").read_text().splitlines()
        if re.search(r"(blas|mkl|blis)[^/]*\.so", line)
    }
    return sorted(paths)


def name() -> str:
    """A folder name for results: one for each kind of processor and number of cores."""
    fields = cpu_fields()
    text = fields.get("model name", platform.machine())
    if "cpu family" in fields:
        text += f" family {fields['cpu family']} model {fields['model']}"
    return re.sub(r"[^a-z0-9]+", "-", f"{text} {cores()} cores".lower()).strip("-")


def commit() -> str:
    """Of this checkout; COMMIT in the environment names it where there is none."""
    if os.environ.get("COMMIT"):
        return os.environ["COMMIT"]
    if shutil.which("git") is None:
        return "unknown"

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ":!bench/results")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + ("+changes" if changed else "")


def describe() -> dict:
    fields = cpu_fields()
    flags = fields.get("flags", "").split()
    return {
        "name": name(),
        "cpu": fields.get("model name", platform.machine()),
        "family": fields.get("cpu family"),
        "model": fields.get("model"),
        "cores": cores(),
        "isa": [flag for flag in flags if flag in ("avx2", "fma") or flag.startswith(("avx512", "amx", "avx_vnni"))],
        "memory_bytes": memory("MemTotal"),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }
