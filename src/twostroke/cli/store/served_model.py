"""A model of a running server, with those methods of `LLM` that a conversation needs."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from typing import IO, Any
from urllib.error import HTTPError

from twostroke.cli.server.running_server import RunningServer
from twostroke.cli.shared.images import as_sent
from twostroke.types.errors import ConfigError, EngineStopped, InvalidRequest
from twostroke.types.grammar import Grammar, GrammarKind
from twostroke.types.output import Delta
from twostroke.types.request import FinishReason
from twostroke.types.sampling.sampling_params import SamplingParams

WAIT_S = 600.0
_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "max_tokens",
)
_NAMES_THERE = {"repeat_penalty": "repetition_penalty"}
_BEGIN, _END = b"data: ", b"[DONE]"

Message = Mapping[str, Any]


class ServedModel:
    """A model of a running server. name: its name at the server. Messages take the place of token ids, because the
    server has the template.

    sampling_defaults: the values that the model's publisher recommends. sees: whether the model reads images. The
    constructor asks the server for both. Raises ConfigError where the server does not answer, InvalidRequest where it
    lacks the model.
    """

    has_template = True

    def __init__(self, url: str, name: str, api_key: str | None) -> None:
        self._server = RunningServer(url, api_key, WAIT_S)
        self.url = url
        self.model_name = name
        self.prompt_tokens = 0
        with self._open("/api/show", {"model": self.model_name}) as answer:
            shown = json.load(answer)
        self.sees = "vision" in shown.get("capabilities", ())
        self.sampling_defaults = self._recommended(str(shown.get("parameters", "")))

    def _recommended(self, text: str) -> Mapping[str, Any]:
        rows = [line.split() for line in text.splitlines()]
        found = {_NAMES_THERE.get(row[0], row[0]): row[1] for row in rows if len(row) == 2}
        numbers = {name: float(text) for name, text in found.items() if name in _FIELDS}
        return {name: int(value) if name == "top_k" else value for name, value in numbers.items()}

    def chat_prompt(self, messages: Sequence[Message]) -> list[Message]:
        """Returns the messages themselves, with image files in base64."""
        return [as_sent(message) for message in messages]

    def chat_tokens(self, text: str, system: str | None = None) -> list[Message]:
        """Returns one user message, after a system message where one is given."""
        before = [] if system is None else [{"role": "system", "content": system}]
        return [*before, {"role": "user", "content": text}]

    def stream(self, messages: Sequence[Message], params: SamplingParams) -> Iterator[Delta]:
        """Yields the answer piece by piece. Raises InvalidRequest where the server refuses, EngineStopped where the
        answer breaks off."""
        asked = {name: value for name in _FIELDS if (value := getattr(params, name)) is not None}
        body = {
            **asked,
            **_form(params.grammar),
            "model": self.model_name,
            "messages": list(messages),
            "stop": list(params.stop),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        last = Delta("", 0, "")
        try:
            with self._open("/v1/chat/completions", body) as answer:
                for event in _events(answer):
                    last = self._delta(event, last)
                    yield last
        except (HTTPException, OSError) as error:
            raise self._broken(f"{error}.") from None
        if last.finish_reason is None:
            raise self._broken("It ended before the answer did.")

    def _delta(self, event: dict[str, Any], before: Delta) -> Delta:
        """Returns one event of the server as a Delta, the engine's form of a piece of an answer. before: the previous
        piece, whose values count where the event has none."""
        if "error" in event:
            raise self._broken(str(event["error"].get("message", event["error"])))
        usage = event.get("usage") or {}
        self.prompt_tokens = usage.get("prompt_tokens", self.prompt_tokens)
        choice = (event.get("choices") or [{}])[0]
        piece = choice.get("delta") or {}
        text = (piece.get("reasoning_content") or "") + (piece.get("content") or "")
        reason = choice.get("finish_reason")
        known = FinishReason(reason) if reason in set(FinishReason) else FinishReason.STOP
        return Delta(
            str(event.get("id", before.request_id)),
            0,
            text,
            finish_reason=before.finish_reason if reason is None else known,
            num_output_tokens=usage.get("completion_tokens", before.num_output_tokens),
            num_cached_tokens=(usage.get("prompt_tokens_details") or {}).get("cached_tokens", before.num_cached_tokens),
        )

    def explain(self, _request_id: str) -> list[Any]:
        """Returns an empty list: the server explains its requests itself (`twostroke explain`)."""
        return []

    def _open(self, path: str, body: Mapping[str, Any]) -> IO[bytes]:
        try:
            return self._server.open(path, json.dumps(body).encode())
        except HTTPError as error:
            if error.code == 404:
                fix = f"`twostroke ps --url {self.url}` shows those that it has."
                raise InvalidRequest(f"The server at {self.url} has no model {self.model_name}.", fix=fix) from None
            raise _refused(error, self.url) from None

    def _broken(self, why: str) -> EngineStopped:
        return EngineStopped(f"The server at {self.url} broke the answer off.", why=why, fix="Ask again.")


def _events(answer: IO[bytes]) -> Iterator[dict[str, Any]]:
    for line in answer:
        if line.startswith(_BEGIN) and not line[len(_BEGIN) :].startswith(_END):
            yield json.loads(line[len(_BEGIN) :])


def _form(grammar: Grammar | None) -> dict[str, Any]:
    """Returns the field of the request that asks for this grammar, structured_outputs; no field without a grammar."""
    if grammar is None:
        return {}
    if grammar.kind is GrammarKind.REGEX:
        return {"structured_outputs": {"regex": grammar.text}}
    return {"structured_outputs": {"json": json.loads(grammar.text)}}


def _refused(error: HTTPError, url: str) -> ConfigError | InvalidRequest | EngineStopped:
    if error.code == 401:
        why, fix = "It was started with one.", "Give it with --api-key."
        return ConfigError("The server wants an API key.", why=why, fix=fix)
    said = ""
    with contextlib.suppress(ValueError, KeyError, TypeError, OSError):
        found = json.load(error)["error"]
        said = str(found["message"] if isinstance(found, dict) else found)
    kind = InvalidRequest if error.code < 500 else EngineStopped
    return kind(said or f"The server at {url} answers {error.code}.")
