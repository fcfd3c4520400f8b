"""Embeddings, ranks and scores as their APIs' answers."""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from typing import Any

from twostroke.runner.retrieval.embedder import VectorOptions
from twostroke.runner.retrieval.reranker import ranked
from twostroke.server.api.retrieval_request import text_of
from twostroke.server.api.shape import HEARTBEAT, Counts
from twostroke.server.api.sse import SSE, Event
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.types.output import Delta


class WholeShape(ABC):
    """The base of answers that are never streamed: embeddings, ranks and scores. Satisfies Shape. rows: for each
    prompt, the sum of the model's output rows, as float64 bytes. Vectors and scores are computed from it."""

    heartbeat = HEARTBEAT
    written = SSE
    closing = b""

    def __init__(self, call: Call, serving: Serving) -> None:
        self.call, self._serving = call, serving
        self.rows = [b""] * len(call.prompts)

    def collect(self, index: int, delta: Delta) -> None:
        self.rows[index] = delta.rows_sum or self.rows[index]

    def events(self, index: int, delta: Delta, counts: Counts) -> list[Event]:
        return []

    def text_event(self, index: int, delta: Delta) -> bytes | None:
        return None

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        return []

    def last_events(self, counts: Counts) -> list[Event]:
        return []

    def problem_events(self, problem: Problem) -> list[Event]:
        return []

    @abstractmethod
    def whole(self, counts: Counts) -> dict[str, Any]:
        """Returns the answer, once all prompts are computed."""

    def scores(self) -> list[float]:
        """Returns the score of each pair, in the order of the documents; empty for a model that does not rank."""
        reranker = self._serving.reranker
        return [] if reranker is None else [reranker.score(rows) for rows in self.rows]

    def counted(self, **answer: Any) -> dict[str, Any]:
        """Returns the answer with the model's name and the number of tokens that were read."""
        tokens = self.call.num_prompt_tokens
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return {**answer, "model": self.call.model or self._serving.served_name, "usage": usage}


class EmbeddingShape(WholeShape):
    """The answer of /v1/embeddings: OpenAI's list of embeddings."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        asked = self.call.asked
        options = VectorOptions(asked.dimensions, asked.normalize is not False)
        data = [
            {"object": "embedding", "index": index, "embedding": self._embedding(index, options)}
            for index in range(len(self.rows))
        ]
        return self.counted(object="list", id=self.call.response_id, created=self.call.created_s, data=data)

    def _embedding(self, index: int, options: VectorOptions) -> list[float] | str:
        embedder = self._serving.embedder
        if embedder is None:
            return []
        vector = embedder.vector(self.call.prompts[index], self.rows[index], options)
        if self.call.asked.encoding_format == "base64":
            return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
        return [float(number) for number in vector]


class RerankShape(WholeShape):
    """The answer of /v1/rerank: the best documents first, each with its index in the request."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        asked = self.call.asked
        results: list[dict[str, Any]] = []
        for each in ranked(self.scores(), asked.top_n):
            found: dict[str, Any] = {"index": each.index, "relevance_score": each.score}
            if asked.return_documents is not False:
                found["document"] = {"text": text_of(asked.documents[each.index])}
            results.append(found)
        return self.counted(id=self.call.response_id, results=results)


class ScoreShape(WholeShape):
    """The answer of /v1/score: one score for each pair, in the order of the pairs."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        data = [{"index": index, "object": "score", "score": score} for index, score in enumerate(self.scores())]
        return self.counted(id=self.call.response_id, object="list", created=self.call.created_s, data=data)
