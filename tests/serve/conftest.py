"""Servers shared by tests that change nothing in them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, serving


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """The fake engine on a real socket."""
    with serving(fake_parts()) as server:
        yield server
