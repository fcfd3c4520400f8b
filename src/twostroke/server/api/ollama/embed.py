"""/api/embed and /api/embeddings: vectors in Ollama's form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from twostroke.runner.retrieval.embedder import VectorOptions
from twostroke.server.api.ollama.names import served_name
from twostroke.server.api.ollama.options import read_options
from twostroke.server.api.ollama.requests import OllamaEmbed, OllamaEmbeddings
from twostroke.server.api.ollama.shapes import durations
from twostroke.server.api.retrieval_request import WHOLE_CONTEXT, EmbeddingRequest, call_of_embedding
from twostroke.server.api.shape import Counts
from twostroke.server.api.shapes.retrieval import WholeShape
from twostroke.server.calls import Call
from twostroke.server.gate.decode import decode
from twostroke.server.serving import Serving
from twostroke.types.output import Delta, Timings


def ollama_embed(body: bytes, serving: Serving) -> Call | None:
    """Reads the body of POST /api/embed. Returns its texts as prompts for the engine; None when there is no text.
    Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, OllamaEmbed)
    name = served_name(request.model, serving)
    if not request.input:
        return None
    cut = None if request.truncate is False else WHOLE_CONTEXT
    asked = EmbeddingRequest(
        model=name, input=_texts(request.input), dimensions=request.dimensions, truncate_prompt_tokens=cut
    )
    return _call(asked, request, serving)


def ollama_embeddings(body: bytes, serving: Serving) -> Call | None:
    """Reads the body of POST /api/embeddings. Returns its text as a prompt for the engine; None when there is no text.
    Raises the errors of ollama_embed."""
    request = decode(body, OllamaEmbeddings)
    name = served_name(request.model, serving)
    if not request.prompt:
        return None
    asked = EmbeddingRequest(
        model=name, input=request.prompt, truncate_prompt_tokens=WHOLE_CONTEXT, normalize=False
    )
    return _call(asked, request, serving)


def _texts(given: str | list[str]) -> str | list[str | int | list[int]]:
    return given if isinstance(given, str) else [*given]


def _call(asked: EmbeddingRequest, request: OllamaEmbed | OllamaEmbeddings, serving: Serving) -> Call:
    kept = ["keep_alive"] if request.keep_alive is not None and serving.stays else []
    ignored = [*read_options(request.options).ignored, *kept]
    call = call_of_embedding(asked, serving)
    return replace(call, model=request.model or "", ignored_fields=tuple(ignored))


class _VectorShape(WholeShape):
    """The code that the answers of /api/embed and /api/embeddings share."""

    def __init__(self, call: Call, serving: Serving) -> None:
        super().__init__(call, serving)
        self._timings: Timings | None = None

    def collect(self, index: int, delta: Delta) -> None:
        super().collect(index, delta)
        self._timings = delta.timings or self._timings

    def vectors(self) -> list[list[float]]:
        """Returns one vector for each text."""
        embedder, asked = self._serving.embedder, self.call.asked
        if embedder is None:
            return []
        options = VectorOptions(asked.dimensions, asked.normalize is not False)
        found = zip(self.call.prompts, self.rows, strict=True)
        return [[float(number) for number in embedder.vector(prompt, rows, options)] for prompt, rows in found]


class OllamaEmbedShape(_VectorShape):
    """The answer of /api/embed."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        took = durations(self._timings)
        return {
            "model": self.call.model,
            "embeddings": self.vectors(),
            "total_duration": took["total_duration"],
            "load_duration": took["load_duration"],
            "prompt_eval_count": self.call.num_prompt_tokens,
        }


class OllamaEmbeddingsShape(_VectorShape):
    """The answer of /api/embeddings."""

    def whole(self, counts: Counts) -> dict[str, Any]:
        return {"embedding": self.vectors()[0]}
