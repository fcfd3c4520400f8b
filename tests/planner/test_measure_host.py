"""The part of a step outside its kernels. It is never less than the part that was measured outside the model."""

from __future__ import annotations

import pytest

from twostroke.lab.planner.doctor.measure_host import Taken


@pytest.mark.parametrize(
    ("kernels_s", "beside_s"),
    [
        (0.002, 0.008),  # the model took longer than its kernels in a loop, so the difference is Python's share
        (0.006, 0.004),
        (0.009, 0.004),  # the loop was disturbed, so Python's share remains
    ],
)
def test_what_is_left_of_a_step(kernels_s: float, beside_s: float) -> None:
    assert Taken(0.010, 0.006).beside(kernels_s) == pytest.approx(beside_s)
