"""Lets these tests import `tools.spark`, which is not part of the package."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools.spark.corpus import Entry, load  # noqa: E402  (the path must be set first)


@pytest.fixture(scope="session")
def entries() -> list[Entry]:
    """The whole corpus, parsed and checked once."""
    return load()
