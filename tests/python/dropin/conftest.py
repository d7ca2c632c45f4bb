"""Plans of the drop-in's tests go into a folder of the run's own, and planning is short."""

import logging

import pytest


@pytest.fixture(autouse=True, scope="session")
def plan_folder(tmp_path_factory):
    """Shared by all tests, as a user's folder is by all modules."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("plans")
    patch.setenv("GNOMON_PLAN_DIR", str(folder))
    yield folder
    patch.undo()


@pytest.fixture
def said(caplog):
    """What the logger `gnomon` said during the test."""
    caplog.set_level(logging.INFO, logger="gnomon")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "gnomon"]
