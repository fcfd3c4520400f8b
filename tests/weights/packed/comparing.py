"""Compares packed weights bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.weights.packed_start import Start, leaves
from twostroke.weights.loaded import ModelWeights


def assert_equal(one: ModelWeights, two: ModelWeights) -> None:
    first, second = leaves(one), leaves(two)
    assert first.keys() == second.keys()
    for key, array in first.items():
        assert array.dtype == second[key].dtype and np.array_equal(array, second[key]), key


def good_weights(model: Path) -> ModelWeights:
    return Start(model, model.parent / "other-cache").weights
