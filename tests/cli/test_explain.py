"""What `gnomon explain` shows of a plan that is stored already, and what the log says of plans that are not ours."""

SMALL = "b2 s5 d16 h2 l2 f48"


def test_a_stored_plan_made_with_less_effort_is_made_anew(gnomon):
    def effort(*words):
        return gnomon.json("explain", SMALL, "--json", "--plan-budget", "0.3", *words)["effort"]

    assert effort("--effort", "estimate") == "estimate"
    assert effort("--effort", "estimate") == "estimate"
    assert effort("--stored") == "estimate"
    assert effort() == "measure"
    assert effort("--effort", "estimate") == "measure", "better than asked for"
    assert effort("--effort", "stored") == "measure"


def test_plans_of_another_environment_are_told_in_the_log(gnomon, tmp_path):
    (tmp_path / "plans").mkdir()
    (tmp_path / "plans" / "Another-CPU-12345678.json").write_text("{}")
    gnomon.environment["GNOMON_LOG"] = "info"
    done = gnomon("explain", SMALL, "--stored", code=2)
    assert "1 other environments' plans" in done.stderr
    gnomon("explain", SMALL, "--effort", "estimate")
    assert "other environments" not in gnomon("explain", SMALL, "--stored").stderr
