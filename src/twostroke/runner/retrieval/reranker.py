"""Makes a prompt from a query and a document, and a score from the model's result.

    PairReranker    a classifier of pairs, as the tokenizer frames them (BGE, MiniLM); a sigmoid over its one label
    TokenReranker   a decoder that is asked "yes" or "no" (Qwen3-Reranker); the probability of yes among the two
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
from msgspec import Struct

from twostroke.runner.retrieval.embedder import NO_OUTPUT
from twostroke.runner.retrieval.texts import TextTokenizer, body_of, framed_pair
from twostroke.types.errors import InvalidRequest, UnsupportedModel
from twostroke.types.output import Prompt
from twostroke.types.pooling import PooledRows, Pooling

YES, NO = "yes", "no"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
BEFORE = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
    'provided. Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n'
)
AFTER = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
"""The text after a pair in the prompt, from the model page of Qwen3-Reranker. BEFORE is the text before the pair."""


class PairOptions(Struct, frozen=True):
    """How a pair of texts becomes a prompt. instruction: tells what makes a document relevant, for models that read an
    instruction. most_tokens: the longest prompt; the document is cut to fit, and with None a prompt that is too long is
    refused. most_document_tokens: the longest document; longer ones are cut. trusted: whether control tokens in the
    texts count as control tokens."""

    instruction: str | None = None
    most_tokens: int | None = None
    most_document_tokens: int | None = None
    trusted: bool = False


PLAIN = PairOptions()


class Ranked(Struct, frozen=True):
    """The index of a document in its request, and its score."""

    index: int
    score: float


def ranked(scores: Iterable[float], most: int | None = None) -> list[Ranked]:
    """Returns the documents with the best score first, at most `most` of them. Equal scores are in the documents'
    order."""
    found = sorted((Ranked(index, score) for index, score in enumerate(scores)), key=lambda each: -each.score)
    return found[:most]


class Reranker(Protocol):
    """Scores a pair of texts with one number."""

    def prompt(self, query: str, document: str, options: PairOptions = PLAIN) -> Prompt:
        """Returns the prompt that the engine computes for a pair. Raises InvalidRequest."""

    def score(self, rows_sum: bytes) -> float:
        """Returns how relevant the document is: more for a larger number. rows_sum: the sum of the model's output rows
        for the pair's prompt, float64 numbers as bytes."""


class PairReranker(Struct, frozen=True):
    """Scores pairs by a classifier. raw: whether scores are the classifier's numbers, without a sigmoid. types: whether
    the model has more than one token type. Satisfies `Reranker`."""

    tokenizer: TextTokenizer
    pooling: Pooling
    raw: bool = False
    types: bool = False

    def prompt(self, query: str, document: str, options: PairOptions = PLAIN) -> Prompt:
        if options.instruction is not None:
            raise InvalidRequest("This model reads no instruction.", param="instruction", fix="Leave it out.")
        frame = self.tokenizer.frame(True)
        first, second = (body_of(self.tokenizer, text, trusted=options.trusted) for text in (query, document))
        ids = framed_pair(frame, first, second[: options.most_document_tokens], options.most_tokens)
        if not ids:
            raise InvalidRequest("The pair has no tokens.", param="query", fix="Send some text.")
        at = len(frame.first) + len(first) + frame.middle_of_first if frame.tells_apart and self.types else None
        return Prompt(tuple(ids), NO_OUTPUT, pooling=PooledRows(self.pooling, second_text=at))

    def score(self, rows_sum: bytes) -> float:
        (value,) = np.frombuffer(rows_sum)
        return float(value) if self.raw else sigmoid(float(value))


class TokenReranker(Struct, frozen=True):
    """Scores pairs by a decoder. The model's rows are the logits of no and of yes. Satisfies `Reranker`."""

    tokenizer: TextTokenizer

    def prompt(self, query: str, document: str, options: PairOptions = PLAIN) -> Prompt:
        instruction = INSTRUCTION if options.instruction is None else options.instruction
        own, trusted = self.tokenizer, options.trusted
        head = f"<Instruct>: {instruction}\n<Query>: {query}\n<Document>: "
        before = body_of(own, "", before=BEFORE)
        body = body_of(own, head + document, trusted=trusted)
        after = body_of(own, "", before=AFTER)
        if options.most_document_tokens is not None:
            kept = len(body_of(own, head, trusted=trusted)) + options.most_document_tokens
            body = body[:kept]
        if options.most_tokens is not None:
            room = options.most_tokens - len(before) - len(after)
            if room < len(body_of(own, head, trusted=trusted)):
                raise InvalidRequest(
                    f"truncate_prompt_tokens {options.most_tokens:,} leaves no room for the document.",
                    param="truncate_prompt_tokens",
                    fix="Send a larger number.",
                )
            body = body[:room]
        return Prompt((*before, *body, *after), NO_OUTPUT, pooling=PooledRows(Pooling.LAST))

    def score(self, rows_sum: bytes) -> float:
        no, yes = np.frombuffer(rows_sum)
        return sigmoid(float(yes - no))


def answer_tokens(tokenizer: TextTokenizer) -> tuple[int, int]:
    """Returns the ids of no and of yes. Raises UnsupportedModel where the vocabulary lacks a token of the template."""
    found = [tokenizer.id_of(token) for token in (NO, YES, "<|im_start|>", "<|im_end|>")]
    if any(each is None for each in found):
        raise UnsupportedModel(
            "This model cannot be asked yes or no.",
            why="The task rerank of a model that generates needs the tokens yes, no, <|im_start|> and <|im_end|>.",
            fix="Use a Qwen3-Reranker, or a checkpoint with a classifier.",
        )
    return int(found[0] or 0), int(found[1] or 0)


def sigmoid(x: float) -> float:
    """Returns 1 / (1 + exp(-x)), without an overflow."""
    if x >= 0:
        return 1.0 / (1.0 + math.exp(-x))
    small = math.exp(x)
    return small / (1.0 + small)


def pairs_of(first: str | Sequence[str], second: str | Sequence[str]) -> list[tuple[str, str]]:
    """Returns the pairs of texts. One first text is paired with all second ones; otherwise both sides must have the
    same number of texts. Raises InvalidRequest."""
    firsts = [first] if isinstance(first, str) else list(first)
    seconds = [second] if isinstance(second, str) else list(second)
    if not firsts or not seconds:
        raise InvalidRequest("There is no pair of texts.", fix="Send at least one text on each side.")
    if len(firsts) == 1:
        firsts *= len(seconds)
    if len(firsts) != len(seconds):
        raise InvalidRequest(
            f"{len(firsts)} texts cannot be paired with {len(seconds)}.",
            fix="Send one first text for all, or as many as second ones.",
        )
    return list(zip(firsts, seconds, strict=True))
