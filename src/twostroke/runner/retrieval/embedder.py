"""Makes a prompt from a text, and the text's vector from the sum of the prompt's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from twostroke.runner.retrieval.sentence_files import SentenceFiles
from twostroke.runner.retrieval.texts import TextTokenizer, body_of, framed
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Prompt
from twostroke.types.pooling import PooledRows, Pooling
from twostroke.types.reading.field_values import whole_numbers
from twostroke.types.sampling.sampling_params import SamplingParams

NO_OUTPUT = SamplingParams(temperature=0.0, max_tokens=0)


class EmbeddingOptions(Struct, frozen=True):
    """How a text becomes a prompt. prompt_name: the name of the instruction ("prompt" in Sentence Transformers) that is
    put before the text; None for the model's default, if it has one. most_tokens: the length to which longer texts are
    cut, special tokens included; with None they are refused. trusted: whether control tokens in the text count as
    control tokens."""

    prompt_name: str | None = None
    most_tokens: int | None = None
    trusted: bool = False


AS_IS = EmbeddingOptions()


class VectorOptions(Struct, frozen=True):
    """The form in which an embedding is returned. dimensions: how many of its first numbers are kept; None for all.
    normalized: whether the kept numbers are then scaled to length 1."""

    dimensions: int | None = None
    normalized: bool = True


@dataclass(frozen=True, slots=True)
class Embedder:
    """Makes vectors of texts. width: how many numbers a vector has, after the model's steps Dense."""

    tokenizer: TextTokenizer
    pooling: Pooling
    width: int
    files: SentenceFiles = field(default_factory=SentenceFiles)

    def prompt(self, text: str | Sequence[int], options: EmbeddingOptions = AS_IS) -> Prompt:
        """Returns the prompt that the engine computes for a text. Token ids in place of a text are taken as they are.
        Raises InvalidRequest."""
        if not isinstance(text, str):
            return Prompt(self._as_given(text, options), NO_OUTPUT, pooling=PooledRows(self.pooling))
        before = self._before(options)
        frame = self.tokenizer.frame(False)
        text = text.lower() if self.files.lower_case else text
        body = body_of(self.tokenizer, text, before=before, trusted=options.trusted)
        ids = framed(frame, body, options.most_tokens)
        if not ids:
            raise InvalidRequest("The text has no tokens.", param="input", fix="Send some text.")
        return Prompt(tuple(ids), NO_OUTPUT, pooling=PooledRows(self.pooling, self._skipped(before)))

    def vector(self, prompt: Prompt, rows_sum: bytes, options: VectorOptions) -> NDArray[np.float32]:
        """Returns the embedding of a prompt, float32. rows_sum: the sum of the model's output rows for the prompt,
        float64 numbers as bytes. Raises InvalidRequest for a number of dimensions that the embedding does not have."""
        total = np.frombuffer(rows_sum)
        if prompt.pooling is not None:
            total = total / prompt.pooling.divisor(len(prompt.token_ids))
        for step in self.files.dense:
            total = step(total)
        total = total[: self.check(options)]
        length = float(np.sqrt(np.dot(total, total)))
        return (total / length if options.normalized and length > 0 else total).astype(np.float32)

    def check(self, options: VectorOptions) -> int:
        """Returns how many numbers the vector will have. Raises InvalidRequest."""
        asked = options.dimensions
        if asked is not None and not 1 <= asked <= self.width:
            raise InvalidRequest(
                f"dimensions must be between 1 and {self.width:,}, the numbers of this model's vectors, not {asked:,}.",
                param="dimensions",
            )
        return asked or self.width

    def _as_given(self, ids: Sequence[int], options: EmbeddingOptions) -> tuple[int, ...]:
        if options.prompt_name:
            raise InvalidRequest(
                "prompt_name needs texts.", param="prompt_name", why="Token ids are taken as they are."
            )
        return tuple(whole_numbers("input", ids))[: options.most_tokens]

    def _before(self, options: EmbeddingOptions) -> str:
        """Returns the instruction ("prompt" in Sentence Transformers) that is put before a text. Raises InvalidRequest
        for a prompt_name that the model does not have."""
        name = self.files.default_prompt if options.prompt_name is None else options.prompt_name
        if not name:
            return ""
        if name not in self.files.prompts:
            known = ", ".join(self.files.prompts)
            raise InvalidRequest(
                f"This model has no prompt named {name[:60]!r}.",
                param="prompt_name",
                fix=f"Use one of {known}." if known else "Leave it out, and write the prompt into the text.",
            )
        return self.files.prompts[name]

    def _skipped(self, before: str) -> int:
        if not before or self.files.include_prompt:
            return 0
        return len(self.tokenizer.frame(False).first) + len(self.tokenizer.encode_rendered(before))
