"""llama.cpp's own form of embeddings: a list, one entry for each text, and a list of vectors in each."""

from __future__ import annotations

from typing import Any

from twostroke.runner.retrieval.embedder import VectorOptions
from twostroke.server.api.retrieval_request import EmbeddingRequest, TextRequest, call_of_embedding
from twostroke.server.api.shape import Counts
from twostroke.server.api.shapes.retrieval import WholeShape
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.serving import Serving
from twostroke.types.errors import InvalidRequest

RAW, EUCLIDEAN = -1, 2


@body_kind
class LlamaEmbedding(TextRequest, kw_only=True):
    """POST /embedding and /embeddings. content: a text, texts, or token ids; `input` is the same.

    embd_normalize: 2 gives a vector of length 1, -1 leaves it as it is.
    """

    content: str | list[str | int | list[int]] | None = None
    input: str | list[str | int | list[int]] | None = None
    embd_normalize: int | None = None


def llama_embedding(body: bytes, serving: Serving) -> Call:
    """Returns the call of an embedding request. Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, LlamaEmbedding)
    texts = request.input if request.content is None else request.content
    if texts is None:
        raise InvalidRequest("The field 'content' is missing.", param="content", fix="Send some text.")
    if request.embd_normalize not in (None, RAW, EUCLIDEAN):
        raise InvalidRequest(
            f"embd_normalize must be {RAW} or {EUCLIDEAN}, not {request.embd_normalize}.",
            param="embd_normalize",
            why="Vectors are as the model gives them, or of length 1.",
            fix=f"Send {EUCLIDEAN}.",
        )
    shared = {name: getattr(request, name) for name in TextRequest.__struct_fields__}
    asked = EmbeddingRequest(input=texts, normalize=request.embd_normalize != RAW, **shared)
    try:
        return call_of_embedding(asked, serving)
    except InvalidRequest as error:
        error.param = "content" if error.param == "input" and request.content is not None else error.param
        raise


class LlamaEmbeddingShape(WholeShape):
    """The list of embeddings in llama.cpp's form."""

    def whole(self, counts: Counts) -> Any:
        embedder = self._serving.embedder
        if embedder is None:
            return []
        options = VectorOptions(None, self.call.asked.normalize)
        vectors = [
            embedder.vector(prompt, rows, options) for prompt, rows in zip(self.call.prompts, self.rows, strict=True)
        ]
        return [
            {"index": index, "embedding": [[float(number) for number in vector]]}
            for index, vector in enumerate(vectors)
        ]
