"""Servers shared by tests that change nothing in them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, serving
from twostroke.server.build import build_server


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    """The fake engine on a real socket."""
    with serving(fake_parts()) as server:
        yield server


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    """The embedded model on a real socket."""
    with build_server("spark", {"kv_memory": "20MB", "threads": 1}) as built, serving(built.parts) as server:
        yield server


@pytest.fixture
def client(spark: Live) -> Iterator[Any]:
    """openai's client of the embedded model."""
    from openai import OpenAI

    with OpenAI(base_url=spark.url + "/v1", api_key="none", max_retries=0) as made:
        yield made
