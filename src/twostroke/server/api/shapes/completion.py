"""Completions in OpenAI's form, with the prompt and its log probabilities when they were asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from twostroke.server.api.logprobs import CompletionLogprobs
from twostroke.server.api.shape import Counts
from twostroke.server.api.shapes.openai_envelope import Envelope
from twostroke.server.api.sse import Event, EventTemplate
from twostroke.server.calls import Call
from twostroke.server.serving import Serving
from twostroke.types.output import Delta
from twostroke.types.result import TokenLogprob


class CompletionShape(Envelope):
    """The answer of /v1/completions ("text_completion"), streamed or whole. Satisfies Shape."""

    def __init__(self, call: Call, serving: Serving) -> None:
        super().__init__(call, serving, "text_completion", "text_completion")
        self._logprobs: dict[int, CompletionLogprobs] = {}
        self._begun: set[int] = set()
        self._templates: dict[int, EventTemplate] = {}
        self._deltas: list[list[Delta]] = [[] for _ in range(call.num_choices)]
        self._scores: list[list[TokenLogprob]] = [[] for _ in call.prompts]
        self._waiting: list[tuple[int, Delta]] = []  # choices that wait for the log probabilities of their prompt

    def events(self, index: int, delta: Delta, counts: Counts) -> list[Event]:
        """Returns the events of a piece. When the prompt's log probabilities are part of the answer, a choice has no
        event before the whole prompt is scored."""
        self._scores[index // self.call.n] += delta.prompt_logprobs
        self._waiting.append((index, delta))
        ready = [(i, d) for i, d in self._waiting if self._scored(i)]
        self._waiting = [(i, d) for i, d in self._waiting if not self._scored(i)]
        made = [choice for i, d in ready if (choice := self._piece(i, d)) is not None]
        return self.timed(delta, counts, [self.chunk([choice], counts) for choice in made])

    def text_event(self, index: int, delta: Delta) -> bytes | None:
        """Returns the bytes of the event for a piece that only adds text, made from a template. For any other piece it
        returns None, and the caller calls `events`."""
        if not delta.text or delta.finish_reason is not None:
            return None
        template = self._templates.get(index)
        if template is None:
            if self.call.scores_prompt or index not in self._begun:
                return None
            template = self.template(partial(self._chunk_choice, index))
            if template is None:
                return None
            self._templates[index] = template
        return template.raw(delta.text, self._logprobs_of(index, delta.logprobs) if delta.logprobs else None)

    def _chunk_choice(self, index: int, text: str, logprobs: Any = None) -> dict[str, Any]:
        return {"index": index, "text": text, "logprobs": logprobs, "finish_reason": None}

    def collect(self, index: int, delta: Delta) -> None:
        self._scores[index // self.call.n] += delta.prompt_logprobs
        self._deltas[index].append(delta)
        self.took(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        choices = [self._choice(index, deltas) for index, deltas in enumerate(self._deltas)]
        return {**self.envelope(choices, streamed=False), "usage": self.usage(counts), **self.whole_timings(counts)}

    def _choice(self, index: int, deltas: Sequence[Delta]) -> dict[str, Any]:
        items = [item for delta in deltas for item in self._shown(delta)]
        return {
            "index": index,
            "text": self._echo(index) + "".join(delta.text for delta in deltas),
            "logprobs": self._logprobs_of(index, items),
            "finish_reason": deltas[-1].finish_reason,
        }

    def _piece(self, index: int, delta: Delta) -> dict[str, Any] | None:
        text = delta.text
        items = self._shown(delta)
        shows_logprobs = self.call.logprobs is not None and bool(items)
        if index not in self._begun and (delta.token_ids or text or delta.finish_reason):
            self._begun.add(index)
            text = self._echo(index) + text
            shows_logprobs = shows_logprobs or self.call.scores_prompt
        if not text and delta.finish_reason is None and not shows_logprobs:
            return None
        made = self._chunk_choice(index, text)
        if shows_logprobs:
            made["logprobs"] = self._logprobs_of(index, items)
        return made | {"finish_reason": delta.finish_reason}

    def _shown(self, delta: Delta) -> tuple[TokenLogprob, ...]:
        """Returns the log probabilities of a piece that the client gets. If the prompt was scored, they include that of
        an end token: such clients count log probabilities from the end, so none may be missing."""
        ends = self.call.scores_prompt and delta.end_logprob is not None
        return (*delta.logprobs, delta.end_logprob) if ends and delta.end_logprob else delta.logprobs

    def _echo(self, index: int) -> str:
        return "" if self.call.echoes is None else self.call.echoes[index // self.call.n]

    def _scored(self, index: int) -> bool:
        place = index // self.call.n
        wanted = len(self.call.prompts[place].token_ids) - 1
        return not self.call.scores_prompt or len(self._scores[place]) >= wanted

    def _logprobs_of(self, index: int, items: Sequence[TokenLogprob]) -> dict[str, Any] | None:
        if self.call.logprobs is None:
            return None
        if index in self._logprobs:
            return self._logprobs[index].piece(items)
        made = self._logprobs[index] = CompletionLogprobs(self.call.logprobs, self.tokenizer)
        if not self.call.scores_prompt:
            return made.piece(items)
        place = index // self.call.n
        return made.piece([*self._scores[place], *items], first_token_id=self.call.prompts[place].token_ids[0])
