"""tools/errors/measure_kl: KL position by position, and the page's texts for a record."""

from __future__ import annotations

import numpy as np
import pytest
from tools.errors.measure_kl import common
from tools.kl.divergence import Divergence, divergence, joined
from tools.pages.kl import ENGINE, KV_EXACT, PEER, WEIGHTS_ALONE, kl_table

RNG = np.random.default_rng(0)
EXACT, FOUND = (RNG.standard_normal((9, 40)).astype(np.float32) for _ in range(2))
IDS = RNG.integers(0, 40, 9).astype(np.int32)


def softmax(logits: np.ndarray) -> np.ndarray:
    shares = np.exp(logits.astype(np.float64))
    return shares / shares.sum(axis=1, keepdims=True)


def test_kl_and_perplexities_are_those_of_the_definition() -> None:
    p, q, rows = softmax(EXACT), softmax(FOUND), np.arange(8)
    found = divergence(EXACT, FOUND + np.float32(3), IDS)  # a constant changes nothing
    assert found.kl == pytest.approx((p * np.log(p / q)).sum(axis=1), rel=1e-5)
    assert list(found.same) == list(p.argmax(axis=1) == q.argmax(axis=1))
    ratio = np.exp(np.mean(np.log(p[rows, IDS[1:]]) - np.log(q[rows, IDS[1:]])))
    assert found.summary()["perplexity_ratio"] == pytest.approx(ratio, abs=1e-5)


def test_the_same_logits_are_no_distance_away() -> None:
    summary = divergence(EXACT, EXACT, IDS).summary()
    assert summary == {"kl_nats": 0, "kl_p99": 0, "kl_max": 0, "same_best_token": 1, "perplexity_ratio": 1}


def test_texts_are_joined_position_by_position() -> None:
    parts = [divergence(EXACT[:4], FOUND[:4], IDS[:4]), divergence(EXACT[4:], FOUND[4:], IDS[4:])]
    whole: Divergence = joined(parts)
    assert np.array_equal(whole.kl, divergence(EXACT, FOUND, IDS).kl)
    assert len(whole.surprise) == 7  # nothing follows the last token of a text


def row(kind: str, theirs: float, ours: float) -> dict:
    summary = {"kl_p99": 0.1, "kl_max": 0.2, "same_best_token": 0.99, "perplexity_ratio": 1.01}
    columns = {PEER: theirs, ENGINE: ours, KV_EXACT: ours, WEIGHTS_ALONE: ours}
    named = {"model": "spark", "type": kind, "writer": PEER, "greedy": {"same": 3, "tokens": 4}}
    return {**named, **{name: {**summary, "kl_nats": kl} for name, kl in columns.items()}}


def test_the_page_names_the_files_on_which_this_engine_is_farther_away() -> None:
    exact = {"model": "spark", "type": "F32", "writer": ENGINE, PEER: {"kl_nats": 2e-9}}
    record = {"machine": "M", "version": "1", "positions": 9, "rows": [exact, row("Q4_K_M", 2e-3, 2e-3)]}
    assert "no larger than llama.cpp's on any file" in kl_table(record) and "2e-09 nats" in kl_table(record)
    record["rows"].append(row("Q8_0", 1e-4, 3e-4))
    assert "larger than llama.cpp's on these files" in kl_table(record)
    assert "\n- Q8_0: spark by llama.cpp\n" in kl_table(record)
    assert "6 of 8 greedy tokens" in kl_table(record)
    assert "| spark | Q8_0 | llama.cpp | 1.0e-04, 3.0e-04 |" in kl_table(record)


def test_answers_are_compared_up_to_the_first_other_token() -> None:
    assert [common([1, 2, 3], [1, 2, 3]), common([1, 2, 3], [1, 5, 3]), common([], [1])] == [3, 1, 0]
