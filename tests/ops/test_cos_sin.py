"""Our own cosine, sine, logarithms and powers are correct, and use only operations that every machine rounds in the
same way."""

from __future__ import annotations

import inspect
import math
import re
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.backends.cpu.cos_sin import native_cos_sin
from twostroke.backends.cpu.library import built_levels, runnable_levels
from twostroke.ops import cos_sin as cos_sin_module
from twostroke.ops.attention import rope_tables, token_weights
from twostroke.ops.cos_sin import BLOCK, MOST_ANGLE, cos_sin
from twostroke.runner.sampling import choose, logprobs, sampler
from twostroke.types.spec import portable, rope
from twostroke.types.spec.portable import ln, powers


def test_they_are_cosine_and_sine() -> None:
    dice = np.random.default_rng(0)
    spread = [dice.uniform(0, most, 50_000) for most in (1, 10, 1e3, 1e5, 1e6, MOST_ANGLE)]
    quarters = np.arange(2000) * (math.pi / 4)
    angles = np.concatenate([*spread, quarters, np.nextafter(quarters, 1e9), np.arange(100_000.0)])
    cosine, sine = cos_sin(angles)
    assert np.abs(cosine - np.cos(angles)).max() < 3e-16
    assert np.abs(sine - np.sin(angles)).max() < 3e-16
    assert np.array_equal(cosine.astype(np.float32), np.cos(angles).astype(np.float32))


@pytest.mark.parametrize("level", [level for level in runnable_levels() if level in built_levels()])
@pytest.mark.parametrize("block", [BLOCK, 7])
def test_native_code_has_the_same_bits(level: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cos_sin_module, "BLOCK", block)
    native, dice = native_cos_sin(level), np.random.default_rng(1)
    assert native is not cos_sin
    quarters = np.arange(1000) * (math.pi / 4)
    spread = [dice.uniform(0, most, 3_000) for most in (1, 1e3, MOST_ANGLE)]
    for angles in (
        np.concatenate([*spread, quarters, np.nextafter(quarters, 1e9), [0.0, -0.0, MOST_ANGLE]]),
        dice.uniform(0, 10, (5, 3, 7))[:, ::2],
        np.empty((0, 4)),
    ):
        for ours, reference in zip(native(angles), cos_sin(angles), strict=True):
            assert ours.shape == reference.shape == angles.shape
            assert ours.tobytes() == reference.tobytes()
    with pytest.raises(ValueError, match="between 0 and"):
        native(np.array([-1.0]))


@pytest.mark.parametrize("angle", [-1.0, 2 * MOST_ANGLE, math.nan, math.inf])
def test_angles_out_of_reach_are_refused(angle: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 134217728"):
        cos_sin(np.array([0.5, angle]))


NOT_THE_SAME_EVERYWHERE = re.compile(r"\b(?:np|math)\.(?:exp2?|expm1|log\w*|cos|sin|tan\w*|power|float_power|pow)\b")


@pytest.mark.parametrize(
    "module", [cos_sin_module, portable, rope, rope_tables, token_weights, choose, logprobs, sampler]
)
def test_nothing_of_the_c_library_is_asked(module: ModuleType) -> None:
    """exp and similar functions differ between processors, and a token must not."""
    assert NOT_THE_SAME_EVERYWHERE.findall(inspect.getsource(module)) == []


@given(st.floats(1.0001, 1e9), st.floats(-8, 8))
def test_logarithms_and_powers(base: float, exponent: float) -> None:
    assert ln(base) == pytest.approx(math.log(base), rel=1e-15, abs=1e-16)
    (found,) = powers(base, [exponent])
    assert found == pytest.approx(base**exponent, rel=1e-13)
