"""Embeddings and scores of encoders through LLM, compared with transformers and the formulas of
sentence-transformers."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.retrieval.checkpoints import encoder, logits_of, rows_of
from tests.retrieval.folders import BAR, EXACT, TEXTS, cosine_error, with_sentence_files
from twostroke.llm import LLM
from twostroke.types.errors import ConfigError, InvalidRequest, UnsupportedModel

SHORT: dict[str, Any] = {name: value for name, value in EXACT.items() if name != "context"}
LONG = ["what is a page of the cache " * 7, "decode reads one token at a time", "page", "the weights . " * 30]


SEEN = [
    *itertools.product(["bert", "xlm-roberta", "nomic-bert", "modernbert"], ["cls_token", "mean_tokens"]),
    *[
        ("mpnet", "mean_tokens"),
        ("deberta-v3", "mean_sqrt_len_tokens"),
        ("albert", "mean_tokens"),
        ("t5", "mean_tokens"),
    ],
]
TAKEN: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cls_token": lambda rows: rows[0],
    "mean_tokens": lambda rows: rows.mean(0),
    "mean_sqrt_len_tokens": lambda rows: rows.sum(0) / np.sqrt(len(rows)),
}


@pytest.mark.parametrize(("family", "pooling"), SEEN)
def test_an_encoder_agrees_with_transformers(family: str, pooling: str, tmp_path: Path) -> None:
    judge, library = encoder(tmp_path, family)
    with_sentence_files(tmp_path, {f"pooling_mode_{pooling}": True}, prompts={"query": "query : "})
    take = TAKEN[pooling]
    with LLM(str(tmp_path), **SHORT) as llm:
        assert llm.resolved["task"] == "embed"
        together, named = llm.embed(LONG), llm.embed(LONG, prompt_name="query")
        alone = np.concatenate([llm.embed(text) for text in reversed(LONG)])[::-1]
        raw = llm.embed(LONG, normalize=False)
    expected = np.stack([take(rows_of(judge, library.encode(text).ids)) for text in LONG])
    assert cosine_error(together, expected) < BAR
    assert np.abs(raw - expected).max() < 1e-4 * np.abs(expected).max()
    assert cosine_error(named, np.stack([take(rows_of(judge, library.encode("query : " + t).ids)) for t in LONG])) < BAR
    assert np.array_equal(together, alone), "an embedding depends on its neighbours"


SCORING = ["bert-classifier", "xlm-roberta-classifier", "electra-classifier", "deberta-classifier"]


@pytest.mark.parametrize("family", SCORING)
def test_a_cross_encoder_agrees_with_transformers(family: str, tmp_path: Path) -> None:
    judge, library = encoder(tmp_path, family)
    queries, documents = ["what is a page", "one", "the weights", "time"], LONG
    with LLM(str(tmp_path), **SHORT) as llm:
        assert llm.resolved["task"] == "rerank"
        scores = llm.score(queries, documents)
        alone = [llm.score(query, text)[0] for query, text in zip(queries, documents, strict=True)]
        best = llm.rerank("what is a page", documents)
    labels = []
    for query, text in zip(queries, documents, strict=True):
        made = library.encode(query, text)
        labels.append(logits_of(judge, made.ids, token_type_ids=made.type_ids)[0])
    assert np.allclose(scores, 1 / (1 + np.exp(-np.array(labels))), atol=1e-4)
    assert scores == alone
    assert [each.score for each in best] == sorted((each.score for each in best), reverse=True)
    if family == "bert-classifier":
        config = json.loads((tmp_path / "config.json").read_text())
        own = {"activation_fn": "torch.nn.modules.linear.Identity"}
        (tmp_path / "config.json").write_text(json.dumps({**config, "sentence_transformers": own}))
        with LLM(str(tmp_path), **SHORT) as llm:
            assert np.allclose(llm.score(queries, documents), labels, atol=1e-4)


def test_a_mean_can_leave_out_the_prompt(tmp_path: Path) -> None:
    judge, library = encoder(tmp_path, "bert")
    files = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    with_sentence_files(tmp_path, files, prompts={"query": "query : "})
    with LLM(str(tmp_path), **SHORT) as llm:
        found = llm.embed(TEXTS, prompt_name="query")
    skipped = len(library.encode("query : ").ids) - 1  # all but [SEP]
    rows = [rows_of(judge, library.encode("query : " + text).ids)[skipped:].mean(0) for text in TEXTS]
    assert cosine_error(found, np.stack(rows)) < BAR


def test_steps_hold_whole_texts_and_nothing_is_kept_of_them(tmp_path: Path) -> None:
    encoder(tmp_path, "bert")
    with LLM(str(tmp_path), **SHORT, context=64, max_step_tokens=64, max_sequences=4) as small:
        some = small.embed(LONG[1:3] * 20)
        gauges = small._built.scheduler.gauges()
        assert gauges.prefix_hit_tokens == gauges.pages_cached == gauges.pages_used == 0
        with pytest.raises(InvalidRequest, match="truncate_prompt_tokens"):
            small.embed(LONG[3])
        cut = small.embed(LONG[3], truncate_prompt_tokens=64)
    with LLM(str(tmp_path), **SHORT) as large:
        assert np.array_equal(some, np.tile(large.embed(LONG[1:3]), (20, 1)))
        assert np.array_equal(cut, large.embed(LONG[3], truncate_prompt_tokens=64))
        assert large.resolved["max_step_tokens"] == 512 and large.resolved["context"] == 256


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"task": "generate"}, UnsupportedModel),
        ({"task": "rerank"}, UnsupportedModel),
        ({"max_step_tokens": 100}, ConfigError),
    ],
)
def test_what_an_encoder_cannot_do_is_refused(options: dict[str, Any], error: type[Exception], tmp_path: Path) -> None:
    encoder(tmp_path, "bert")
    with pytest.raises(error):
        LLM(str(tmp_path), **SHORT, **options)


def test_an_encoder_generates_nothing(tmp_path: Path) -> None:
    encoder(tmp_path, "bert")
    with LLM(str(tmp_path), **SHORT) as llm, pytest.raises(InvalidRequest, match="generates no text"):
        llm.generate("the page")
