"""Embeddings and scores of decoders through LLM, compared with transformers and the formulas of their pages."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.retrieval.checkpoints import logits_of, qwen_config, qwen_embedding, qwen_reranker, rows_of, write
from tests.retrieval.folders import BAR, EXACT, QUERY, TEXTS, cosine_error, qwen_tokenizer
from twostroke.llm import LLM
from twostroke.runner.retrieval.reranker import AFTER, BEFORE, INSTRUCTION
from twostroke.types.errors import InvalidRequest, UnsupportedModel


@pytest.mark.parametrize("pooling", ["lasttoken", "mean_tokens", "cls_token"])
def test_qwen3_embedding_agrees_with_transformers(pooling: str, tmp_path: Path) -> None:
    judge = qwen_embedding(tmp_path, pooling)
    take = {
        "lasttoken": lambda rows: rows[-1],
        "mean_tokens": lambda rows: rows.mean(0),
        "cls_token": lambda rows: rows[0],
    }
    library = qwen_tokenizer()
    with LLM(str(tmp_path), **EXACT) as llm:
        assert llm.resolved["task"] == "embed"
        plain = llm.embed(TEXTS)
        named = llm.embed(TEXTS, prompt_name="query")
        short = llm.embed(TEXTS, dimensions=10)
        raw = llm.embed(TEXTS, normalize=False)
    for found, before in ((plain, ""), (named, QUERY)):
        expected = np.stack([take[pooling](rows_of(judge, library.encode(before + text).ids)) for text in TEXTS])
        assert cosine_error(found, expected) < BAR
        assert np.allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        if not before:
            assert np.abs(raw - expected).max() < 1e-3 * np.abs(expected).max()
            assert cosine_error(short, expected[:, :10]) < BAR


@pytest.mark.parametrize("pooling", ["lasttoken", "mean_tokens"])
def test_an_embedding_does_not_depend_on_the_batch_or_the_chunks(pooling: str, tmp_path: Path) -> None:
    qwen_embedding(tmp_path, pooling)
    with LLM(str(tmp_path), **EXACT) as llm:
        together = llm.embed(TEXTS)
        again = llm.embed(TEXTS)  # their beginnings are cached now
        alone = np.concatenate([llm.embed(text) for text in reversed(TEXTS)])[::-1]
    with LLM(str(tmp_path), **EXACT, max_step_tokens=7, max_sequences=2) as llm:
        chunked = llm.embed(TEXTS)
    for other in (again, alone, chunked):
        assert np.array_equal(together, other)


def test_any_causal_model_embeds_where_that_is_asked(tmp_path: Path) -> None:
    judge = qwen_reranker(tmp_path)
    with LLM(str(tmp_path), **EXACT, task="embed", pooling="mean") as llm:
        found = llm.embed(TEXTS)
    rows = [rows_of(judge.model, qwen_tokenizer().encode(text).ids).mean(0) for text in TEXTS]
    assert cosine_error(found, np.stack(rows)) < BAR
    with LLM(str(tmp_path), **EXACT) as llm:
        assert llm.generate("a")[0].completions
        with pytest.raises(InvalidRequest, match="task='embed'"):
            llm.embed("a")


def test_qwen3_reranker_is_asked_yes_or_no(tmp_path: Path) -> None:
    judge, library = qwen_reranker(tmp_path), qwen_tokenizer()
    no, yes = library.token_to_id("no"), library.token_to_id("yes")

    def expected(query: str, document: str, instruction: str = INSTRUCTION) -> float:
        body = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
        ids = [i for part in (BEFORE, body, AFTER) for i in library.encode(part, add_special_tokens=False).ids]
        logits = logits_of(judge, ids)[-1]
        return float(1 / (1 + np.exp(logits[no] - logits[yes])))

    with LLM(str(tmp_path), **{**EXACT, "context": 1024}, task="rerank") as llm:
        scores = llm.score("what is a page", TEXTS)
        best = llm.rerank("what is a page", TEXTS, top_n=2)
        other = llm.score("what is a page", TEXTS, instruction="Be brief")
    wanted = [expected("what is a page", text) for text in TEXTS]
    assert np.allclose(scores, wanted, atol=1e-4)
    assert np.allclose(other, [expected("what is a page", text, "Be brief") for text in TEXTS], atol=1e-4)
    order = sorted(range(3), key=lambda place: -wanted[place])
    assert [each.index for each in best] == order[:2] and best[0].score == scores[order[0]]


def test_a_decoder_with_a_classifier_scores_pairs(tmp_path: Path) -> None:
    config = qwen_config(num_labels=1, pad_token_id=0)
    judge = write(tmp_path, "Qwen3ForSequenceClassification", config, qwen_tokenizer())
    with LLM(str(tmp_path), **EXACT) as llm:
        assert llm.resolved["task"] == "rerank"
        scores = llm.score(["one", "two", "what"], TEXTS)
    for query, text, score in zip(["one", "two", "what"], TEXTS, scores, strict=True):
        ids = qwen_tokenizer().encode(query, text).ids
        label = logits_of(judge, ids)[0]
        assert abs(score - 1 / (1 + np.exp(-label))) < 1e-4


def test_a_classifier_of_two_labels_is_refused(tmp_path: Path) -> None:
    config = qwen_config(num_labels=2, pad_token_id=0)
    write(tmp_path, "Qwen3ForSequenceClassification", config, qwen_tokenizer())
    with pytest.raises(UnsupportedModel, match="2 labels"):
        LLM(str(tmp_path), **EXACT)
