"""Under a small address space or data segment: an answer, or one clear line about the environment; never a signal."""

import subprocess

import pytest

from conftest import BUILD

DONE, ENVIRONMENT = 0, 3


def loads(limit):
    """Below this the system's loader gives up, before Gnomon is asked."""
    return subprocess.run(["bash", "-c", f"{limit}; exec {BUILD}/gnomon --version"], capture_output=True).returncode == 0


@pytest.mark.parametrize("kind", ["v", "d"])
@pytest.mark.parametrize("mebibytes", [60, 75, 90, 100, 110, 125, 150, 200, 300])
def test_never_a_signal(gnomon, kind, mebibytes):
    limit = f"ulimit -{kind} {mebibytes * 1024}"
    if not loads(limit):
        pytest.skip(f"the program cannot be loaded under {limit}")
    for words in ('verify "b2 s16 d64 h4 l2 f128" -n 1', 'explain "b2 s16 d64 h4 l2 f128 mask"', 'bench "b2 s8 d32 h2 l1 f64" --budget 2'):
        done = subprocess.run(["bash", "-c", f"{limit}; exec {BUILD}/gnomon {words} --plan-budget 0.5 --plan-dir ''"],
                              capture_output=True, text=True, env=gnomon.environment, cwd=gnomon.folder, timeout=120)
        told = f"{limit}: {words}\n{done.stdout}{done.stderr}"
        assert done.returncode in (DONE, ENVIRONMENT), told
        if done.returncode == ENVIRONMENT:
            assert len(done.stderr.splitlines()) <= 1, told
            assert any(word in done.stderr + done.stdout for word in ("RLIMIT", "memory", "thread")), told


def test_the_limit_is_named_with_its_figures(gnomon):
    done = subprocess.run(["bash", "-c", f"ulimit -v {90 * 1024}; exec {BUILD}/gnomon verify 'b2 s16 d64 h4 l2 f128' -n 1"],
                          capture_output=True, text=True, env=gnomon.environment)
    assert done.returncode == ENVIRONMENT
    assert "ulimit -v" in done.stderr and "32.0 MiB" in done.stderr
