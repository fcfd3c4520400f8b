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


@pytest.mark.parametrize("block", [1, 7, BLOCK])
def test_blocks_change_no_bit(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(1)
    angles = dice.uniform(0, 1e4, (5, 3, 7))[:, ::2]
    alone = [cos_sin(np.array([each])) for each in angles.flat]
    right = [np.concatenate(parts) for parts in zip(*alone, strict=True)]
    monkeypatch.setattr(cos_sin_module, "BLOCK", block)
    for ours, reference in zip(cos_sin(angles), right, strict=True):
        assert ours.shape == angles.shape
        assert ours.tobytes() == reference.tobytes()


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
