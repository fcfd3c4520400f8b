"""Every kind of weights has its number in the header, and is in the lists over which tests of kinds run."""

from __future__ import annotations

import re
from pathlib import Path

from twostroke.ops.cases import FLOATS, INTEGERS
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.stored import HELD

HEADER = Path(__file__).resolve().parents[2] / "csrc" / "include" / "twostroke" / "abi.h"


def test_the_header_has_the_same_numbers_and_names_the_last_one() -> None:
    (words,) = re.findall(r"enum ts_weight_kind \{(.*?)\};", HEADER.read_text(), re.DOTALL)
    *numbered, last = re.findall(r"TS_W_(\w+) = (\w+)", words)
    assert {name: int(number) for name, number in numbered} == {kind.name: kind for kind in WeightKind}
    assert last == ("LAST", f"TS_W_{max(WeightKind).name}")


def test_a_kind_keeps_floats_or_codes_of_files_or_is_in_the_grids_of_rounded_kinds() -> None:
    assert {each.kind for each in FLOATS} == {kind for kind in WeightKind if kind.is_float}
    stored = {kind for kind in WeightKind if kind.is_stored}
    assert stored == {kind for kind, _ in HELD}  # `is_stored` holds for no kind to which floats alone are rounded
    assert {each.kind for each in INTEGERS} == {kind for kind in WeightKind if not kind.is_float} - stored


def test_plans_know_the_rate_of_every_kind() -> None:
    whole = {kind.arithmetic for kind in WeightKind if not kind.is_float}
    assert whole == {WeightKind.INT8, WeightKind.INT4}, "rates are measured for these two"
