"""A model and an empty cache for the tests of packed weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.weights.checkpoints import CONFIG, random_tensors, write
from twostroke.weights.packed import room


@pytest.fixture
def model(tmp_path) -> Path:
    return write(tmp_path / "model", CONFIG, random_tensors(CONFIG))


@pytest.fixture
def cache(tmp_path) -> Path:
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def a_small_disk_will_do(monkeypatch):
    monkeypatch.setattr(room, "KEPT_FREE_BYTES", 0)
