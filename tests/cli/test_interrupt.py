"""Ctrl-C during a planning: the best plan so far is used and stored; a second one ends the process."""

import json
import os
import pty
import signal
import subprocess

from conftest import BUILD

LARGE = "b64 s512 d512 h8 f2048"
BUDGET = 40  # seconds, none of which the tests wait for


class Planning:
    """`gnomon explain` whose progress line, which only a terminal gets, is read from a pseudo-terminal."""

    def __init__(self, gnomon):
        self.terminal, theirs = pty.openpty()
        words = [str(BUILD / "gnomon"), "explain", LARGE, "--json", "--plan-budget", str(BUDGET)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs, text=True, cwd=gnomon.folder,
                                        env=gnomon.environment)
        os.close(theirs)
        self.told = b""

    def wait_for(self, text):
        while text not in self.told:
            self.told += os.read(self.terminal, 4096)

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def end(self):
        out, _ = self.process.communicate(timeout=BUDGET)
        os.close(self.terminal)
        return out


def test_the_first_one_keeps_the_best_plan_so_far(gnomon):
    planning = Planning(gnomon)
    planning.wait_for(b"path=plain")
    planning.interrupt()
    record = json.loads(planning.end())
    assert planning.process.returncode == 0
    assert any(note.startswith("cut short by the caller") for note in record["notes"])
    assert record["planning_seconds"] < BUDGET / 2
    assert any("cancelled" in candidate["reason"] for candidate in record["candidates"] if candidate["outcome"] == "untimed")
    assert gnomon.json("explain", LARGE, "--stored", "--json") == record


def test_the_second_one_ends_the_process(gnomon):
    planning = Planning(gnomon)
    planning.wait_for(b"path=plain")
    planning.interrupt()
    planning.wait_for(b"cut short")
    planning.interrupt()
    assert planning.end() == ""
    assert planning.process.returncode == -signal.SIGINT
    gnomon("explain", LARGE, "--stored", code=2)
