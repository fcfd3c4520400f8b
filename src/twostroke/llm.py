"""Runs a model as one object.

    with LLM("spark") as llm:
        print(llm.generate("Why is decode memory-bound?")[0].text)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from twostroke.assembly import engine as assemble
from twostroke.assembly.optional import chat_template, embedder, reranker
from twostroke.cost.history.ledger import MAX_FINISHED
from twostroke.engine.sync_engine import SyncEngine
from twostroke.ops.program.model import Model
from twostroke.text.params_in_tokens import in_tokens
from twostroke.text.templates.quoting import Quoting, Rendered
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import BackendError, ConfigError, InvalidRequest
from twostroke.types.output import Delta, GenerationOutput, Prompt
from twostroke.types.pooling import Task
from twostroke.types.reading.field_values import whole_numbers
from twostroke.types.reading.user_path import user_path
from twostroke.types.recorded.exchange_spent import ExchangeSpent
from twostroke.types.request import FinishReason
from twostroke.types.sampling.open_values import filled
from twostroke.types.sampling.sampling_params import SamplingParams

if TYPE_CHECKING:
    from twostroke.cost.explain.explanation import Explanation
    from twostroke.images.eyes import Eyes
    from twostroke.runner.adapters.shelf import AdapterShelf
    from twostroke.runner.retrieval.reranker import Ranked
    from twostroke.text.templates.chat_template import ChatTemplate

TextOrTokens = str | Sequence[int] | Prompt
"""The types of a prompt: a text, token ids, or a Prompt as `chat_prompt` returns it."""


class LLM:
    """An engine for any number of threads: prompts that are under way at the same time share their steps.

    model: "spark" (embedded), a folder, or a hub id. options: names of `twostroke serve --help`, as weights="int4" or
    adapter={"sql": "adapters/sql"}. progress(done, total, what) is called while weights load, with bytes of the
    checkpoint and the name of a tensor. Raises ModelError, OutOfMemory, ConfigError.
    """

    def __init__(
        self, model: str = "spark", *, progress: Callable[[int, int, str], None] | None = None, **options: Any
    ) -> None:
        self._built = assemble.build_sync(model, options, progress)
        self.engine: SyncEngine = self._built.engine
        self.tokenizer: Tokenizer = self._built.tokenizer
        self._template: ChatTemplate | None = self._built.template

    @property
    def model_name(self) -> str:
        """The model's name in messages and reports."""
        return str(self._built.model_name)

    @property
    def resolved(self) -> Any:
        """The value of every setting, with the reason why it has this value."""
        return self._built.resolved

    @property
    def spec(self) -> Model:
        """Sizes and flags of the model."""
        found: Model = self._built.spec
        return found

    @property
    def sees(self) -> bool:
        """Whether the model reads images."""
        return self._built.eyes is not None

    @property
    def vocab_size(self) -> int:
        """The number of token ids; legal ids are below it."""
        return int(self._built.spec.vocab_size)

    @property
    def sampling_defaults(self) -> Mapping[str, Any]:
        """The sampling values of the model's generation_config, by SamplingParams name."""
        found: Mapping[str, Any] = self._built.sampling_defaults
        return found

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template."""
        return self._template is not None

    def default_params(self) -> SamplingParams:
        """Returns the model's own sampling parameters; greedy where they name no temperature."""
        return SamplingParams(**{"temperature": 0.0, **filled({}, self.sampling_defaults)})

    def prompt_tokens(self, text: str) -> list[int]:
        """Returns the token ids of a plain prompt, including BOS where the tokenizer adds one."""
        return self.tokenizer.encode_prompt(text)

    def messages_tokens(self, messages: Sequence[Mapping[str, Any]], *, parse_special: bool = False) -> list[int]:
        """Returns the token ids of a conversation, ready for the assistant's answer. Raises InvalidRequest.

        parse_special: whether texts of control tokens in messages become control tokens, which can forge turns.
        """
        prompt = self._rendered(messages, parse_special)
        return self.tokenizer.encode_rendered(prompt.text, quoted=prompt.quoted)

    def chat_tokens(self, text: str, system: str | None = None, *, parse_special: bool = False) -> list[int]:
        """Returns the token ids of one user message, after a system message if one is given. parse_special: whether
        texts of control tokens in the messages become control tokens."""
        before = [] if system is None else [{"role": "system", "content": system}]
        return self.messages_tokens([*before, {"role": "user", "content": text}], parse_special=parse_special)

    def generate(
        self,
        prompts: TextOrTokens | Sequence[TextOrTokens],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        adapter: str | Sequence[str | None] | None = None,
    ) -> list[GenerationOutput]:
        """Answers one prompt or many (texts or token ids), in their order. params, adapter: one for all prompts, or one
        for each.

        Raises InvalidRequest for wrong prompts, BackendError where the engine failed on one of them.
        """
        asked = _prompt_list(prompts)
        if isinstance(params, SamplingParams) or params is None:
            each: Sequence[SamplingParams] = [params or self.default_params()] * len(asked)
        else:
            each = params
        if len(each) != len(asked):
            raise InvalidRequest(f"{len(asked)} prompts and {len(each)} SamplingParams.", fix="Give one, or one each.")
        names = [adapter] * len(asked) if isinstance(adapter, str) or adapter is None else list(adapter)
        if len(names) != len(asked):
            raise InvalidRequest(f"{len(asked)} prompts and {len(names)} adapters.", fix="Give one, or one each.")
        made = [self._prompt(*one) for one in zip(asked, each, names, strict=True)]
        outputs = [_unbroken(output) for output in self.engine.generate(made)]
        texts = [prompt if isinstance(prompt, str) else None for prompt in asked]
        return [replace(output, prompt=text) for output, text in zip(outputs, texts, strict=True)]

    def beam_search(
        self,
        prompts: TextOrTokens | Sequence[TextOrTokens],
        beams: int,
        *,
        max_tokens: int | None = None,
        length_penalty: float = 1.0,
        early_stopping: bool | str = False,
        ignore_eos: bool = False,
    ) -> list[GenerationOutput]:
        """Returns the `beams` best answers to each prompt that a beam search finds, best first, each with its `score`.

        See `SamplingParams.use_beam_search`. Raises as `generate` does.
        """
        params = SamplingParams(
            n=beams,
            use_beam_search=True,
            max_tokens=max_tokens,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
            ignore_eos=ignore_eos,
        )
        return self.generate(prompts, params)

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        params: SamplingParams | None = None,
        *,
        adapter: str | None = None,
    ) -> GenerationOutput:
        """Returns the assistant's next message. messages: objects with role and content. Raises as `generate` does.

        A part {"type": "image", "image": x} of a content is an image, where the model reads images. x is a path, the
        bytes of a file, an array (height, width, 3) of uint8, or a PIL image.
        """
        rendered, prompt = self._chat_prompt(messages)
        return replace(self.generate([prompt], params, adapter=adapter)[0], prompt=rendered.text)

    def chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> Prompt:
        """Returns a conversation with its images as a prompt for `generate` and `stream`. Raises InvalidRequest."""
        return self._chat_prompt(messages)[1]

    def stream(
        self, prompt: TextOrTokens, params: SamplingParams | None = None, *, adapter: str | None = None
    ) -> Iterator[Delta]:
        """Yields the answer piece by piece. Closing the iterator ends the request. Raises as `generate` does.

        With best_of or a beam search, each answer comes as one whole piece, when all answers are there.
        """
        return self.engine.stream([self._prompt(prompt, params or self.default_params(), adapter)])

    @property
    def adapters(self) -> tuple[str, ...]:
        """The names of loaded adapters, which `generate`, `chat` and `stream` take."""
        shelf = self._built.adapters
        return () if shelf is None else tuple(each.name for each in shelf.loaded())

    def load_adapter(self, name: str, folder: str | Path) -> None:
        """Adds a LoRA adapter while the engine runs. Raises ConfigError, also where max_adapters leaves no place."""
        self._shelf().load(name, user_path(folder))

    def unload_adapter(self, name: str) -> None:
        """Removes an adapter. Running requests that use it continue. Raises InvalidRequest for a name that is not
        loaded."""
        self._shelf().unload(name)

    def embed(
        self,
        texts: TextOrTokens | Sequence[TextOrTokens],
        *,
        prompt_name: str | None = None,
        dimensions: int | None = None,
        normalize: bool = True,
        truncate_prompt_tokens: int | None = None,
    ) -> NDArray[np.float32]:
        """Returns (texts, width) float32: the vector of each text or list of token ids, of length 1 where `normalize`
        is True.

        prompt_name: the name of the model's prompt that is put before each text. dimensions: the number of leading
        values to return of each vector, for models trained for that. truncate_prompt_tokens: the length to which longer
        texts are cut; without it they are refused. Raises BackendError. Raises InvalidRequest, also for a model that
        generates text (start it with task="embed").
        """
        own = self._built.texts.embedder
        if own is None:
            raise _other_task("embed", self.spec.task)
        options = embedder.VectorOptions(dimensions, normalize)
        own.check(options)
        asked = embedder.EmbeddingOptions(prompt_name, truncate_prompt_tokens)
        prompts = [own.prompt(text, asked) for text in _text_list(texts)]
        sums = self._rows_sums(prompts)
        found = [own.vector(prompt, rows, options) for prompt, rows in zip(prompts, sums, strict=True)]
        return np.array(found, np.float32).reshape(len(found), -1)

    def score(
        self,
        queries: str | Sequence[str],
        documents: str | Sequence[str],
        *,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[float]:
        """Returns the relevance of each document. queries: one query for all documents, or one for each. instruction:
        what makes a document relevant, for models that read an instruction. Raises as `embed` does."""
        own = self._built.texts.reranker
        if own is None:
            raise _other_task("score", self.spec.task)
        asked = reranker.PairOptions(instruction, truncate_prompt_tokens)
        pairs = reranker.pairs_of(queries, documents)
        sums = self._rows_sums([own.prompt(query, document, asked) for query, document in pairs])
        return [own.score(rows) for rows in sums]

    def rerank(
        self,
        query: str,
        documents: Sequence[str],
        *,
        top_n: int | None = None,
        instruction: str | None = None,
        truncate_prompt_tokens: int | None = None,
    ) -> list[Ranked]:
        """Returns the index and the score of each document, the best first; at most `top_n` of them. Raises as `embed`
        does."""
        if top_n is not None and top_n < 1:
            raise InvalidRequest(f"top_n must be at least 1, not {top_n}.", param="top_n")
        scores = self.score(query, documents, instruction=instruction, truncate_prompt_tokens=truncate_prompt_tokens)
        return reranker.ranked(scores, top_n)

    def explain(self, request_id: str) -> list[Explanation]:
        """Returns for each completion of an ended request why it took as long as it did.

        request_id: the id in a GenerationOutput or a Delta. Raises InvalidRequest for an id that is unknown or
        forgotten.
        """
        found = self._built.explainer.explain(request_id)
        if not found:
            raise InvalidRequest(
                f"No request with the id {request_id[:100]!r} has ended here.",
                param="request_id",
                why=f"The last {MAX_FINISHED:,} are kept.",
            )
        return found

    @property
    def exchanged(self) -> ExchangeSpent:
        """The time and bytes that the exchange with the other ranks or stages took in all steps so far; zeros for one
        process."""
        found: ExchangeSpent = self._built.session.ledger.history.exchanged
        return found

    def settle(self) -> None:
        """Waits until the weights lie in huge pages. This is for measurements, since the engine also answers before
        that."""
        self._built.settler.wait()

    def close(self) -> None:
        """Gives back memory and threads. Running answers in other threads end with EngineStopped.

        Raises EngineStopped where the packed weights are damaged, because answers may then have been wrong. Weights
        that were not compared with their checksums yet are compared first. For a model of a gigabyte this takes a
        fraction of a second.
        """
        self.engine.stop()
        try:
            self._built.weights_check.finish()
        finally:
            self._built.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:  # the exception under way matters more than an error of close()
            self.engine.stop()
            self._built.close()

    def _rows_sums(self, prompts: Sequence[Prompt]) -> list[bytes]:
        return [_unbroken(output).rows_sum for output in self.engine.generate(prompts)]

    def _rendered(self, messages: Sequence[Mapping[str, Any]], parse_special: bool) -> Rendered:
        quoting = Quoting() if parse_special else self.tokenizer.quoting()
        template = chat_template.required(self._template, self.model_name)
        eyes: Eyes | None = self._built.eyes
        pictures = None if eyes is None else eyes.look(messages, local=True)
        if pictures is None:
            return quoting.shown(template.render(messages, each_text=quoting.hide))
        text = template.render(pictures.messages, each_text=quoting.hide, pictures=pictures.marks)
        return structs.replace(quoting.shown(pictures.expanded(text)), pictures=pictures)

    def _chat_prompt(self, messages: Sequence[Mapping[str, Any]]) -> tuple[Rendered, Prompt]:
        rendered = self._rendered(messages, False)
        token_ids = tuple(self.tokenizer.encode_rendered(rendered.text, quoted=rendered.quoted))
        images = () if rendered.pictures is None else rendered.pictures.spans(token_ids)
        return rendered, Prompt(token_ids, self.default_params(), images=images)

    def _shelf(self) -> AdapterShelf:
        if self._built.adapters is None:
            raise ConfigError("This engine has no place for adapters.", fix="Give it some: LLM(..., max_adapters=4).")
        return self._built.adapters

    def _prompt(self, prompt: TextOrTokens, params: SamplingParams, adapter: str | None = None) -> Prompt:
        if isinstance(prompt, Prompt):
            return replace(prompt, params=in_tokens(params, self.tokenizer), adapter=adapter)
        ids = self.prompt_tokens(prompt) if isinstance(prompt, str) else whole_numbers("prompt", prompt)
        return Prompt(tuple(ids), in_tokens(params, self.tokenizer), adapter=adapter)


def _other_task(wanted: str, task: Task) -> InvalidRequest:
    fix = {Task.GENERATE: "Start it with task='embed' or task='rerank', where it was trained for that."}
    return InvalidRequest(
        f"This model cannot {wanted}.",
        why=f"It is served for the task {task}.",
        fix=fix.get(task, "Use another model."),
    )


def _prompt_list(prompts: TextOrTokens | Sequence[TextOrTokens]) -> list[TextOrTokens]:
    """Returns the prompts as a list. One text, or one list of ids, counts as one prompt."""
    if isinstance(prompts, (str, Prompt)):
        return [prompts]
    if not isinstance(prompts, Iterable):
        raise InvalidRequest("A prompt is neither text nor a list of token ids.", param="prompts")
    items: list[Any] = list(prompts)
    if items and not any(isinstance(item, (Iterable, Prompt)) for item in items):
        return [whole_numbers("prompts", items)]
    return [item if isinstance(item, (str, Prompt)) else whole_numbers("prompts", item) for item in items]


def _text_list(texts: TextOrTokens | Sequence[TextOrTokens]) -> list[str | Sequence[int]]:
    found = _prompt_list(texts)
    plain = [text for text in found if not isinstance(text, Prompt)]
    if len(plain) != len(found):
        raise InvalidRequest("Conversations have no vectors.", param="texts", fix="Give texts or token ids.")
    return plain


def _unbroken(output: GenerationOutput) -> GenerationOutput:
    for completion in output.completions:
        if completion.finish_reason is FinishReason.ERROR:
            raise BackendError("The engine failed on a prompt.", why=completion.error or "")
    return output
