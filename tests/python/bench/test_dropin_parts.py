"""bench/dropin_parts.py names what it measures, and measures what is there."""

import re

import dropin_parts


def test_every_part_has_a_time(monkeypatch, capsys):
    monkeypatch.setattr(dropin_parts, "ROUNDS", 2)
    monkeypatch.setattr(dropin_parts, "CALLS", 3)
    dropin_parts.main("cpu")
    head, *lines = capsys.readouterr().out.splitlines()
    times = {line[9:].strip(): float(line[:7]) for line in lines}
    assert re.match(r"b1 s100 .* cpu; us$", head)
    assert 0 < times["test of the weights"] < times["the whole call"] and times["Engine.forward"] < times["the whole call"]
    assert "the current stream" not in times
