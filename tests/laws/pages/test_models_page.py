"""docs/models.md has a row for every architecture, and no row without a record of parity."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tools.pages.models import RECORDS, models_page

from tests.models.families.stored import by_architecture

PROMISED = 1e-3
"""The largest promised error, as a share of the logit range."""


def records() -> dict[str, dict[str, Any]]:
    return dict(json.loads(RECORDS.read_text()))


def test_the_records_are_those_of_the_families_that_tests_have() -> None:
    """If this fails, run python -m tools.errors.measure_parity --missing and then make docs."""
    tested = {family: name for name, families in by_architecture().items() for family in families}
    assert {family: record["architecture"] for family, record in records().items()} == tested


def test_no_record_is_above_what_is_promised() -> None:
    assert [family for family, record in records().items() if not 0 < record["error"] <= PROMISED] == []
    assert [family for family, record in records().items() if not record["levels"]] == []


def test_an_architecture_without_a_record_is_refused_by_name() -> None:
    missing = {family: record for family, record in records().items() if record["architecture"] != "GPT2LMHeadModel"}
    assert 0 < len(missing) < len(records())
    with pytest.raises(SystemExit, match="GPT2LMHeadModel"):
        models_page(missing)
