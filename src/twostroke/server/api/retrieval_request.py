"""Reads requests for embeddings, for ranks and for scores of texts, and makes prompts of them.

This runs in a worker thread, because tokenizers can take a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from twostroke.runner.retrieval.embedder import Embedder, EmbeddingOptions, VectorOptions
from twostroke.runner.retrieval.reranker import PairOptions, Reranker, pairs_of
from twostroke.server.api.model_list import adapter_of, asked_model
from twostroke.server.api.schema import MAX_PRIORITY, MAX_SALT_CHARACTERS
from twostroke.server.calls import Call
from twostroke.server.gate.decode import body_kind, decode
from twostroke.server.serving import Serving
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Prompt

_Maker = TypeVar("_Maker", Embedder, Reranker)
MAX_TEXTS = 2048
"""The most texts in one request, the same number as OpenAI's."""

WHOLE_CONTEXT = -1


class TextRequest(msgspec.Struct, kw_only=True):
    """The fields that requests for embeddings, ranks and scores share. truncate_prompt_tokens: longer texts are cut to
    this number of tokens; -1 means the length of the context.

    parse_special: True when the texts may contain control tokens such as <|im_end|>; otherwise these are plain text.
    """

    model: str | None = None
    user: str | None = None
    truncate_prompt_tokens: int | None = None
    parse_special: bool | None = None
    priority: int | None = None
    cache_salt: str | None = None
    # These fields are known, but not supported: only null passes.
    activation: Any = None
    use_activation: Any = None
    add_special_tokens: Any = None
    truncate: Any = None


@body_kind
class EmbeddingRequest(TextRequest, kw_only=True):
    """The body of POST /v1/embeddings, which asks for vectors. input: a text, texts, token ids, or lists of token
    ids."""

    input: str | list[str | int | list[int]]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = None
    prompt_name: str | None = None
    normalize: bool | None = None
    # These fields are known, but not supported: only null passes.
    messages: Any = None
    instruction: Any = None
    input_type: Any = None
    task: Any = None
    late_chunking: Any = None
    embedding_type: Any = None
    embed_dtype: Any = None
    endianness: Any = None
    output_dtype: Any = None
    output_dimension: Any = None


class RankedDocument(msgspec.Struct, kw_only=True):
    """A document with its text in a field, as Jina's clients send it."""

    text: str


@body_kind
class RerankRequest(TextRequest, kw_only=True):
    """The body of POST /v1/rerank, which asks how relevant documents are for a query. top_n: how many of the best
    documents are in the answer. max_tokens_per_doc: each document is cut to this number of tokens."""

    query: str
    documents: list[str | RankedDocument]
    top_n: int | None = None
    return_documents: bool | None = None
    instruction: str | None = None
    max_tokens_per_doc: int | None = None
    # These fields are known, but not supported: only null passes.
    max_chunks_per_doc: Any = None
    rank_fields: Any = None
    top_k: Any = None


@body_kind
class ScoreRequest(TextRequest, kw_only=True):
    """The body of POST /v1/score, which asks for the scores of pairs of texts. text_1: the first text of all pairs, or
    a list with one for each text in text_2."""

    text_1: str | list[str]
    text_2: str | list[str]
    instruction: str | None = None


REFUSED = (
    "activation use_activation add_special_tokens truncate messages input_type task late_chunking embedding_type "
    "embed_dtype endianness output_dtype output_dimension max_chunks_per_doc rank_fields top_k"
).split()
_FIXES = {
    "input_type": "Send prompt_name, with the name of one of the model's prompts.",
    "truncate": "Send truncate_prompt_tokens.",
    "output_dimension": "Send dimensions.",
    "top_k": "Send top_n.",
    "messages": "Send input.",
    "instruction": "Write it into the text, or send prompt_name.",
}


def embedding_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of an embedding request and returns its texts as prompts for the engine. Raises InvalidRequest,
    ContextLengthExceeded, HttpProblem."""
    return call_of_embedding(decode(body, EmbeddingRequest), serving)


def call_of_embedding(request: EmbeddingRequest, serving: Serving) -> Call:
    """Returns the texts of an embedding request from any API as prompts for the engine. Raises the errors of
    embedding_call."""
    _check_shared(request, serving, [*REFUSED, "instruction"])
    embedder = _required(serving.embedder)
    embedder.check(VectorOptions(request.dimensions))
    texts = _inputs(request.input)
    options = EmbeddingOptions(request.prompt_name, _most(request, serving), bool(request.parse_special))
    return _call(request, "embd-", "input", [partial(embedder.prompt, text, options) for text in texts], serving)


def rerank_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of a rerank request and returns a prompt for each pair of query and document. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request = decode(body, RerankRequest)
    _check_shared(request, serving, REFUSED)
    for name in ("top_n", "max_tokens_per_doc"):
        value = getattr(request, name)
        if value is not None and value < 1:
            raise InvalidRequest(f"{name} must be at least 1, not {value}.", param=name)
    if not request.query:
        raise InvalidRequest("query is empty.", param="query", fix="Send some text.")
    options = PairOptions(
        request.instruction, _most(request, serving), request.max_tokens_per_doc, bool(request.parse_special)
    )
    _check_count(len(request.documents), "documents")
    reranker = _required(serving.reranker)
    made = [partial(reranker.prompt, request.query, text_of(each), options) for each in request.documents]
    return _call(request, "rerank-", "documents", made, serving)


def score_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of a score request and returns a prompt for each pair of texts. Raises InvalidRequest,
    ContextLengthExceeded, HttpProblem."""
    request = decode(body, ScoreRequest)
    _check_shared(request, serving, REFUSED)
    for name in ("text_1", "text_2"):
        value = getattr(request, name)
        _check_count(1 if isinstance(value, str) else len(value), name)
    options = PairOptions(request.instruction, _most(request, serving), trusted=bool(request.parse_special))
    try:
        pairs = pairs_of(request.text_1, request.text_2)
    except InvalidRequest as error:
        error.param = "text_1"
        raise
    reranker = _required(serving.reranker)
    made = [partial(reranker.prompt, first, second, options) for first, second in pairs]
    return _call(request, "score-", "text_2", made, serving)


def text_of(document: str | RankedDocument) -> str:
    """Returns the text of a document, however it was sent."""
    return document if isinstance(document, str) else document.text


def _required(found: _Maker | None) -> _Maker:
    if found is None:
        raise ValueError("this server has another task: its routes refuse the request first")
    return found


def _inputs(given: str | Sequence[str | int | list[int]]) -> list[str | list[int]]:
    """Returns `input`, in any of its four forms, as a list of prompts."""
    if isinstance(given, str):
        given = [given]
    ids = [item for item in given if isinstance(item, int)]
    if ids and len(ids) == len(given):
        return [ids]
    several = [item for item in given if not isinstance(item, int)]
    if len(several) != len(given):
        raise InvalidRequest(
            "input mixes token ids with texts or lists.",
            param="input",
            fix="Send a text, a list of texts, a list of token ids, or a list of such lists.",
        )
    if "" in several or [] in several or not several:
        raise InvalidRequest("input is empty, or holds an empty text.", param="input", fix="Send some text.")
    _check_count(len(several), "input")
    return several


def _check_count(count: int, name: str) -> None:
    if not 1 <= count <= MAX_TEXTS:
        raise InvalidRequest(f"{name} must have 1 to {MAX_TEXTS:,} entries, not {count:,}.", param=name)


def _check_shared(request: TextRequest, serving: Serving, refused: Sequence[str]) -> None:
    asked_model(request.model, serving)
    for name in refused:
        if getattr(request, name, None) is not None:
            fix = _FIXES.get(name, "Leave it out.")
            raise InvalidRequest(f"{name} is not supported.", param=name, fix=fix, code="unsupported_value")
    if request.priority is not None and not 0 <= request.priority <= MAX_PRIORITY:
        raise InvalidRequest(f"priority must be between 0 and {MAX_PRIORITY}.", param="priority")
    if request.cache_salt is not None and len(request.cache_salt) > MAX_SALT_CHARACTERS:
        raise InvalidRequest(f"cache_salt has more than {MAX_SALT_CHARACTERS} characters.", param="cache_salt")


def _most(request: TextRequest, serving: Serving) -> int | None:
    asked = request.truncate_prompt_tokens
    if asked is None or asked == WHOLE_CONTEXT:
        return None if asked is None else serving.context_tokens
    if not 1 <= asked <= serving.context_tokens:
        raise InvalidRequest(
            f"truncate_prompt_tokens must be -1 or between 1 and {serving.context_tokens:,}, not {asked:,}.",
            param="truncate_prompt_tokens",
        )
    return asked


def _call(
    request: TextRequest, prefix: str, param: str, makers: Sequence[Callable[[], Prompt]], serving: Serving
) -> Call:
    """Makes the prompts of a request and lets the engine check each of them. prefix: the beginning of the answer's id.
    param: the client's name for the texts, which errors name. makers: functions that each make one prompt."""
    response_id = prefix + serving.new_id()
    prompts = []
    for place, make in enumerate(makers):
        try:
            made = replace(
                make(),
                request_id=f"{response_id}-{place}",
                cache_salt=request.cache_salt or "",
                priority=request.priority or 0,
                adapter=adapter_of(request.model, serving),
            )
            serving.engine.check(made)
        except InvalidRequest as error:
            error.param = param if error.param in (None, "prompt") else error.param
            raise
        prompts.append(made)
    return Call(
        response_id=response_id,
        created_s=int(serving.wall_clock()),
        prompts=tuple(prompts),
        asked=request,
        model=asked_model(request.model, serving),
    )
