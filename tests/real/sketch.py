"""Logits of a large vocabulary in few numbers that can be stored, and the comparison with others.

The numbers are 256 columns, the greedy tokens, and sums of each row with random signs. An error of a hidden state
reaches the columns. An error in one row of the head reaches the sums, where it is visible from 2% of the range on.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from tests.models.parity import BAR, TIE

COLUMNS, SUMS = 256, 8


def _columns(width: int) -> np.ndarray:
    return np.random.default_rng(7).choice(width, min(COLUMNS, width), replace=False)


def _sums(rows: np.ndarray) -> np.ndarray:
    """Sums of each row with random signs, divided so that equal errors in all columns give sums of the same size."""
    signs = np.random.default_rng(8).choice([-1.0, 1.0], (rows.shape[1], SUMS))
    return rows.astype(np.float64) @ signs / np.sqrt(rows.shape[1])


def _text(values: np.ndarray) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()


def _flat(text: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), "<f4")


def sketch(rows: np.ndarray) -> dict[str, Any]:
    """The stored numbers for logits (T, V)."""
    span = float(rows.max() - rows.min())
    largest = np.sort(rows, axis=1)[:, -2:]
    clear = largest[:, 1] - largest[:, 0] > TIE * span
    tokens = np.where(clear, rows.argmax(axis=1), -1)
    kept = {"columns": _text(rows[:, _columns(rows.shape[1])]), "sums": _text(_sums(rows))}
    return {"range": span, "width": rows.shape[1], "tokens": tokens.tolist(), **kept}


def differences(found: np.ndarray, kept: dict[str, Any]) -> list[str]:
    """The differences between logits (T, V) and the sketch, in words. Empty where they are equal up to BAR."""
    assert found.shape == (len(kept["tokens"]), kept["width"])
    said, most = list[str](), BAR * kept["range"]
    for name, values in (("columns", found[:, _columns(found.shape[1])]), ("sums", _sums(found))):
        error = float(np.abs(values - _flat(kept[name]).reshape(values.shape)).max())
        if not error < most:
            said.append(f"{name} differ by {error / kept['range']:.1e} of the range")
    other = [place for place, token in enumerate(kept["tokens"]) if token not in (-1, found[place].argmax())]
    return [*said, *([f"other tokens at {other}"] if other else [])]


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two sketches belong to the same logits. A token that is clear in only one of them is no difference."""
    tokens = zip(one["tokens"], other["tokens"], strict=True)
    alike = all(first == second or -1 in (first, second) for first, second in tokens)
    errors = [np.abs(np.subtract(*(_flat(each[name]) for each in (one, other)))).max() for name in ("columns", "sums")]
    return alike and one["width"] == other["width"] and max(errors) < BAR * one["range"]
