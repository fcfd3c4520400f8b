"""A calibration survives its JSON form. For a broken, foreign or old file the machine is measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cost.machines import calibration
from twostroke.backends.cpu.calibration_file import MAX_BYTES, fingerprint, read_calibration, write_calibration
from twostroke.cost.calibration import VERSION, Calibration
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import WeightKind


def test_it_survives_its_json_form() -> None:
    known = calibration()
    assert Calibration.from_json(json.loads(json.dumps(known.as_json()))) == known


def test_a_kept_file_is_found_by_its_fingerprint(tmp_path: Path) -> None:
    known = calibration()
    path = write_calibration(tmp_path, known)
    assert read_calibration(tmp_path, known.fingerprint) == known
    assert read_calibration(tmp_path, "another") is None
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def change(name: str, value: Any) -> dict[str, Any]:
    return {**calibration().as_json(), name: value}


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        "{}",
        json.dumps(change("version", VERSION - 1)),
        json.dumps(change("fingerprint", "somebody else's")),
        json.dumps(change("linear", {})["linear"]),
        json.dumps(change("linear", {"int9": {}})),
        json.dumps(change("linear", {"int8": {"cold": [[1, 1]], "warm": [[1, 1]]}})),
        json.dumps(change("other", [[2, 1], [2, 1]])),
        json.dumps(change("other", 3)),
        json.dumps(change("threads", "two")),
        json.dumps(change("host", {"step_s": 1})),
        " " * (MAX_BYTES + 1),
    ],
)
def test_a_broken_file_counts_as_none(tmp_path: Path, content: str) -> None:
    known = calibration()
    write_calibration(tmp_path, known).write_text(content)
    assert read_calibration(tmp_path, known.fingerprint) is None


def test_a_folder_that_refuses_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "doctor").write_text("a file where the folder should be")
    with pytest.raises(ConfigError, match="could not be kept"):
        write_calibration(tmp_path, calibration())
    assert [each.name for each in tmp_path.iterdir()] == ["doctor"]


def test_the_fingerprint_changes_with_what_the_figures_depend_on() -> None:
    marks = [fingerprint(*given) for given in (("a", "generic", 1), ("b", "generic", 1), ("a", "generic", 2))]
    assert len(set(marks)) == 3 and fingerprint("a", "generic", 1) == marks[0]


def test_rates_by_weight_kind() -> None:
    known = calibration()
    assert known.product_rate(WeightKind.INT4) == known.product_rate(WeightKind.INT8) == 1600e9
    assert known.product_rate(WeightKind.BF16) == known.product_rate(WeightKind.F32) == 400e9
    assert known.bf16_flops_per_s == pytest.approx(2 * 512 / (2048e-12 * 2))
    assert calibration(linear={}).bf16_flops_per_s == 0


def test_a_disturbed_measurement_knows_it() -> None:
    assert not calibration(others_share=0.05).disturbed and calibration(others_share=0.3).disturbed
