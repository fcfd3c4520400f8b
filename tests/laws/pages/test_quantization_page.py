"""docs/quantization.md has a row for every format to which the code rounds, and no other rows."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from tools.pages.quantization import ASKED, FILE, quantization_page


def record() -> dict[str, Any]:
    return dict(json.loads(FILE.read_text()))


def test_both_models_have_a_row_of_every_format() -> None:
    page = quantization_page()
    assert all(page.count(f"| `{asked}` |") == len(record()["models"]) == 2 for asked in ASKED)


@pytest.mark.parametrize("asked", [ASKED[0], ASKED[-1]])
def test_a_format_without_a_record_is_refused_by_name(asked: str) -> None:
    less = copy.deepcopy(record())
    less["models"]["spark"] = [row for row in less["models"]["spark"] if row["format"] != asked]
    with pytest.raises(SystemExit, match=asked):
        quantization_page(less)


def test_a_format_without_a_speed_is_refused_by_name() -> None:
    less = copy.deepcopy(record())
    less["models"]["spark"][1].pop("tokens_per_second")
    with pytest.raises(SystemExit, match=ASKED[1]):
        quantization_page(less)


def test_a_record_of_a_format_that_is_gone_is_refused_by_name() -> None:
    more = copy.deepcopy(record())
    more["models"]["spark"].append({**more["models"]["spark"][0], "format": "--to int1"})
    with pytest.raises(SystemExit, match="--to int1"):
        quantization_page(more)
