"""Answers of /completion: pieces with `content`, and a last one with counts and timings."""

from __future__ import annotations

from typing import Any

from twostroke.server.api.logprobs import chat_logprobs
from twostroke.server.api.shape import HEARTBEAT, Counts
from twostroke.server.api.sse import SSE, Event
from twostroke.server.api.timings import timings_of
from twostroke.server.calls import Call
from twostroke.server.errors import Problem
from twostroke.server.serving import Serving
from twostroke.types.output import Delta
from twostroke.types.sampling.sampler_fields import FIELD_NAMES, SAMPLERS
from twostroke.types.sampling.sampling_params import SamplingParams


def sampler_settings(params: SamplingParams) -> dict[str, Any]:
    """Returns the values of all sampling parameters of a request, by llama.cpp's names."""
    shown = {name: getattr(params, name) for name in FIELD_NAMES}
    return {**shown, "samplers": SAMPLERS if params.samplers is None else params.samplers}


class LlamaShape:
    """One answer of /completion, streamed or whole. Satisfies Shape."""

    heartbeat = HEARTBEAT
    written = SSE
    closing = b""

    def __init__(self, call: Call, serving: Serving) -> None:
        self._call, self._serving = call, serving
        self._text = ""
        self._token_ids: list[int] = []
        self._probabilities: list[dict[str, Any]] = []
        self._end: Delta | None = None

    def events(self, index: int, delta: Delta, counts: Counts) -> list[Event]:
        self._take(delta)
        if not (delta.text or delta.token_ids) or delta.finish_reason is not None and not delta.text:
            return []
        made = {"index": 0, "content": delta.text, "tokens": list(delta.token_ids), "stop": False}
        found = self._items(delta)
        return [Event(None, {**made, **({"completion_probabilities": found} if found else {})})]

    def text_event(self, index: int, delta: Delta) -> bytes | None:
        """Returns None: an event of this API also contains the token ids, so `events` must make it."""
        return None

    def progress_events(self, news: dict[str, Any]) -> list[Event]:
        return [Event(None, {"index": 0, "content": "", "tokens": [], "stop": False, **news})]

    def last_events(self, counts: Counts) -> list[Event]:
        return [Event(None, {**self._ended(counts), "content": "", "tokens": []})]

    def problem_events(self, problem: Problem) -> list[Event]:
        error = {"code": problem.status, "message": problem.message, "type": problem.kind}
        return [Event(None, {"error": error})]

    def collect(self, index: int, delta: Delta) -> None:
        self._take(delta)
        self._text += delta.text
        self._probabilities += self._items(delta)

    def whole(self, counts: Counts) -> dict[str, Any]:
        tokens = self._token_ids if self._call.asked.return_tokens else []
        found = {"completion_probabilities": self._probabilities} if self._probabilities else {}
        return {**self._ended(counts), "content": self._text, "tokens": tokens, **found}

    def _take(self, delta: Delta) -> None:
        self._token_ids += delta.token_ids
        if delta.finish_reason is not None:
            self._end = delta

    def _items(self, delta: Delta) -> list[dict[str, Any]]:
        if self._call.logprobs is None or not delta.logprobs:
            return []
        made = chat_logprobs(delta.logprobs, self._call.logprobs, self._serving.tokenizer)["content"]
        ids = [item.token_id for item in delta.logprobs]
        return [{"id": token_id, **item} for token_id, item in zip(ids, made, strict=True)]

    def _ended(self, counts: Counts) -> dict[str, Any]:
        end, prompt = self._end, self._call.prompts[0]
        reason = None if end is None or end.finish_reason is None else end.finish_reason.value
        word = end.stop_reason if end is not None and isinstance(end.stop_reason, str) else ""
        params = prompt.params
        return {
            "index": 0,
            "id_slot": self._call.slot or 0,
            "stop": True,
            "model": self._call.model,
            "tokens_predicted": counts.completion,
            "tokens_evaluated": self._call.num_prompt_tokens,
            "tokens_cached": counts.cached,
            "generation_settings": {
                "seed": params.seed,
                "temperature": params.temperature,
                "top_k": params.top_k,
                "top_p": params.top_p,
                "min_p": params.min_p,
                **sampler_settings(params),
                "repeat_penalty": params.repetition_penalty,
                "presence_penalty": params.presence_penalty,
                "frequency_penalty": params.frequency_penalty,
                "n_predict": params.max_tokens,
                "stop": list(params.stop),
            },
            "prompt": self._serving.tokenizer.decode(prompt.token_ids),
            "has_new_line": "\n" in self._text,
            "truncated": False,
            "stop_type": "limit" if reason == "length" else "word" if word else "eos",
            "stopping_word": word,
            "timings": timings_of(None if end is None else end.timings, self._call.num_prompt_tokens, counts),
        }
