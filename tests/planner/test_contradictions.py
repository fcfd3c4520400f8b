"""Figures that cannot both be true are an error: nothing is kept, and earlier figures are not used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.cost.machines import calibration
from tests.planner.test_doctor import machine_of
from twostroke.backends.cpu.calibration_file import write_calibration
from twostroke.backends.cpu.limits import Limits
from twostroke.cost.calibration import Calibration
from twostroke.lab.planner.doctor.examine import with_limits_again
from twostroke.lab.planner.doctor.machine import ThisMachine
from twostroke.lab.planner.doctor.meaning import contradictions, meaning
from twostroke.types.errors import Contradiction


def lowered(here: ThisMachine, found: Calibration, name: str) -> Calibration:
    """One limit as if all threads had run on one core."""
    marks = {"fingerprint": here.patient.fingerprint, "title": here.patient.title}
    return replace(found, **marks, **{name: getattr(found, name) / 4})


def test_figures_that_fit_together_are_none() -> None:
    assert contradictions(calibration()) == []


@pytest.mark.parametrize(
    ("name", "says"), [("int8_ops_per_s", "prefill of a 1 B int4"), ("read_bytes_per_s", "decode of a 1 B int8")]
)
def test_a_limit_that_was_measured_too_low_is_found_and_not_kept(name: str, says: str, tmp_path: Path) -> None:
    here = machine_of(tmp_path)
    wrong = lowered(here, calibration(), name)
    assert any(says in line for line in contradictions(wrong))
    with pytest.raises(Contradiction, match="not kept") as raised:
        here.measure(lambda *note: None, lambda *_: wrong)
    assert says in raised.value.why and here.kept() is None
    write_calibration(tmp_path, wrong)  # an older version wrote this file
    assert here.kept() is None
    fine = replace(wrong, **{name: 4 * getattr(wrong, name)})
    assert here.kept_or_measured(lambda *note: None, lambda *_: fine) == fine == here.kept()


def test_the_kernels_may_be_a_little_quicker_than_the_limit() -> None:
    found = calibration()
    reached = meaning(found, "int4").prefill_tokens_per_s / meaning(found, "int4").prefill_ceiling_tokens_per_s
    assert contradictions(replace(found, int8_ops_per_s=found.int8_ops_per_s * reached / 1.04)) == []
    assert contradictions(replace(found, int8_ops_per_s=found.int8_ops_per_s * reached / 1.10)) != []


def test_limits_are_measured_again_until_they_fit_the_kernels() -> None:
    fine = calibration()
    slow = Limits(2, "avx2", fine.read_bytes_per_s / 4, fine.f32_flops_per_s, fine.int8_ops_per_s / 4)
    quick = Limits(2, "avx2", fine.read_bytes_per_s, fine.f32_flops_per_s / 2, fine.int8_ops_per_s)
    timed = replace(fine, read_bytes_per_s=slow.read_bytes_per_s, int8_ops_per_s=slow.int8_ops_per_s)
    measured = iter([slow, quick, slow])
    assert with_limits_again(timed, lambda: next(measured)) == fine and next(measured) is slow
    assert contradictions(with_limits_again(timed, lambda: slow)) != []
