"""Makes Ollama's requests for answers into the requests of this server."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from twostroke.server.api.changed.kept_tools import AskedTool
from twostroke.server.api.infill import infill_tokens
from twostroke.server.api.ollama.names import served_name
from twostroke.server.api.ollama.options import ReadOptions, clients_words, read_options
from twostroke.server.api.ollama.requests import AnswerRequest, OllamaChat, OllamaGenerate
from twostroke.server.api.schema import ChatRequest, CompletionRequest, checked_chat, checked_completion
from twostroke.server.calls import Call
from twostroke.server.gate.decode import check_depth, decode
from twostroke.server.prompts import call_of_chat, call_of_completion
from twostroke.server.serving import Serving
from twostroke.text.talk.switches import EFFORT
from twostroke.types.errors import ContextLengthExceeded, InvalidRequest
from twostroke.types.images import PlacedPart
from twostroke.types.notes import Notes
from twostroke.types.reading.decoders import json_decoder

PREFIX = "ollama-"
LEVELS = ("low", "medium", "high", "max")
MAX_TOP = 20
_tools_of = json_decoder(list[AskedTool])


def ollama_chat(body: bytes, serving: Serving) -> Call | None:
    """Reads the body of POST /api/chat. Returns its prompt for the engine, and how it is to be answered; None for a
    request without messages, which only asks that the model be loaded. Raises InvalidRequest, ContextLengthExceeded,
    HttpProblem."""
    request = decode(body, OllamaChat)
    name = served_name(request.model, serving)
    if not request.messages:
        return None
    messages = [_message(each, place) for place, each in enumerate(request.messages)]
    return _answer(request, name, messages, request.tools or [], serving)


def ollama_generate(body: bytes, serving: Serving) -> Call | None:
    """Reads the body of POST /api/generate. Returns its prompt for the engine, and how it is to be answered. Returns
    None for a request without a prompt, which only asks that the model be loaded. Raises the errors of
    `ollama_chat`."""
    request = decode(body, OllamaGenerate)
    name = served_name(request.model, serving)
    _refuse_unsupported(request, serving)
    if not request.prompt and not request.suffix:
        return None
    if request.raw or request.suffix or serving.template is None:
        return _raw_answer(request, name, serving)
    system = [{"role": "system", "content": request.system}] if request.system else []
    content = _seen(request.images or [], request.prompt or "", "images")
    return _answer(request, name, [*system, {"role": "user", "content": content}], [], serving)


def _refuse_unsupported(request: OllamaGenerate, serving: Serving) -> None:
    if request.images and (request.raw or serving.template is None):
        raise InvalidRequest("raw mode does not take images", param="images")
    if request.suffix and infill_tokens(serving) is None:
        raise InvalidRequest(f"{serving.served_name} does not support insert", param="suffix")
    for name in ("template", "system", "context"):
        if request.raw and getattr(request, name):
            raise InvalidRequest(f"raw mode does not support template, system, or context: {name}", param=name)
    own = "" if serving.template is None else serving.template.source
    if request.template and request.template != own:
        raise InvalidRequest(
            "template is not supported.",
            param="template",
            why="It is a Go template, and this engine renders the model's own.",
            fix="Leave it out, or send raw: true with the whole prompt.",
            code="unsupported_value",
        )
    vocabulary = serving.card.shape.get("vocab_size", 1 << 31)
    if any(not 0 <= each < vocabulary for each in request.context or ()):
        raise InvalidRequest("context holds a number that is no token id of this model.", param="context")


def _seen(images: list[Any], text: str, param: str) -> Any:
    """Returns the content of a message, with its images, in base64, before its text. The images are only checked later,
    when the messages are rendered, because it is not known here whether the model reads images."""
    if not images:
        return text
    if not isinstance(images, list) or not all(isinstance(each, str) for each in images):
        raise InvalidRequest("Each image must be text in base64.", param=param)
    found = [
        PlacedPart({"type": "image", "source": {"type": "base64", "data": each}}, f"{param}[{place}]")
        for place, each in enumerate(images)
    ]
    return [*found, {"type": "text", "text": text}]


def _message(message: dict[str, Any], place: int) -> dict[str, Any]:
    """Returns a message of Ollama's API in the form that our chat template renderer expects."""
    made = {name: value for name, value in message.items() if name in ("role", "content", "tool_call_id") and value}
    made.setdefault("role", "")
    if (name := message.get("tool_name") or message.get("name")) is not None:
        made["name"] = name
    if message.get("thinking"):
        made["reasoning_content"] = message["thinking"]
    calls = message.get("tool_calls")
    if calls:  # an earlier turn, so nothing in it is refused
        listed = calls if isinstance(calls, list) else [calls]
        named = [{**each, "id": each.get("id") or ""} for each in listed if isinstance(each, dict)]
        made["tool_calls"] = named
    made["content"] = _seen(message.get("images") or [], made.get("content", ""), f"messages[{place}].images")
    return made


def _tools(asked: list[Any]) -> list[AskedTool]:
    try:
        return _tools_of.decode(json.dumps(asked))
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"tools cannot be read: {error}.", param="tools") from None


def _answer(
    request: AnswerRequest, name: str, messages: list[dict[str, Any]], tools: list[Any], serving: Serving
) -> Call:
    options, notes = read_options(request.options), Notes()
    check_depth([tools, request.format], serving.caps.json_depth)

    def made(kept: Sequence[dict[str, Any]]) -> Call:
        chat = ChatRequest(
            model=name,
            messages=[dict(each) for each in kept],
            tools=_tools(tools) if tools else None,
            response_format=_format(request.format),
            stream=request.stream is not False,
            logprobs=True if request.logprobs else None,
            top_logprobs=_top(request) if request.logprobs else None,
            reasoning_effort=_effort(request, serving),
            **options.fields,
        )
        with clients_words():
            call = call_of_chat(checked_chat(chat, serving.caps.json_depth, notes), serving, PREFIX, asked=request)
        return _within(_with_context(call, request, serving), options)

    call = made(messages) if request.truncate is False else _fitting(messages, made, notes)
    return _finished(replace(call, warnings=notes.texts), request, options, serving)


def _fitting(
    messages: list[dict[str, Any]], made: Callable[[Sequence[dict[str, Any]]], Call], notes: Notes
) -> Call:
    """Makes the prompt with as many of the newest messages as fit the context. made: makes a prompt of some messages.
    System messages and the last message are never left out."""
    try:
        return made(messages)
    except ContextLengthExceeded:
        old = [place for place, each in enumerate(messages[:-1]) if each.get("role") != "system"]
        if not old:
            raise

    def without(count: int) -> Call:
        dropped = set(old[:count])
        return made([each for place, each in enumerate(messages) if place not in dropped])

    fewest, most = 1, len(old)
    found = without(most)  # raises when even the last message is too long
    while fewest < most:
        middle = (fewest + most) // 2
        try:
            found, most = without(middle), middle
        except ContextLengthExceeded:
            fewest = middle + 1
    notes.add(f"the {most} oldest messages were left out: the conversation is longer than the context")
    return found


def _with_context(call: Call, request: AnswerRequest, serving: Serving) -> Call:
    context = getattr(request, "context", None)
    if not context:
        return call
    prompts = tuple(replace(each, token_ids=(*context, *each.token_ids)) for each in call.prompts)
    for each in prompts:
        serving.engine.check(each)
    return replace(call, prompts=prompts)


def _within(call: Call, options: ReadOptions) -> Call:
    """Returns the request for the engine with its prompt and answer bounded by num_ctx. The model is not loaded again
    for this."""
    if options.context is None:
        return call
    prompts = []
    for prompt in call.prompts:
        room = options.context - len(prompt.token_ids)
        if room < 1:
            raise ContextLengthExceeded(
                f"The prompt has {len(prompt.token_ids)} tokens and options.num_ctx is {options.context}.",
                param="options.num_ctx",
            )
        asked = prompt.params.max_tokens
        prompts.append(replace(prompt, params=replace(prompt.params, max_tokens=min(asked or room, room))))
    return replace(call, prompts=tuple(prompts))


def _raw_answer(request: OllamaGenerate, name: str, serving: Serving) -> Call:
    """Returns the request for the engine with the prompt as the client sent it: no template, no other tokens."""
    options = read_options(request.options)
    text = request.prompt or ""
    ids = [] if request.suffix else serving.tokenizer.encode_rendered(text, serving.context_tokens)
    completion = CompletionRequest(
        model=name,
        prompt=text if request.suffix else list(ids),
        suffix=request.suffix,
        stream=request.stream is not False,
        response_format=_format(request.format),
        logprobs=min(_top(request), 5) if request.logprobs else None,
        **{"n_predict": -1, **options.fields},
    )
    with clients_words():
        call = call_of_completion(checked_completion(completion, serving.caps.json_depth), serving, PREFIX)
    return _finished(_within(call, options), request, options, serving)


def _finished(call: Call, request: AnswerRequest, options: ReadOptions, serving: Serving) -> Call:
    ignored = [*options.ignored]
    if request.keep_alive is not None and serving.stays:
        ignored.append("keep_alive")  # the only model of this server stays loaded
    if request.shift:
        ignored.append("shift")
    return replace(call, asked=request, ignored_fields=tuple(ignored), model=request.model or "")


def _format(asked: Any) -> dict[str, Any] | None:
    if asked is None or asked == "":
        return None
    if asked == "json":
        return {"type": "json_object"}
    if isinstance(asked, dict):
        return {"type": "json_schema", "json_schema": {"schema": asked}}
    raise InvalidRequest('format must be "json" or a JSON schema.', param="format")


def _top(request: AnswerRequest) -> int:
    top = request.top_logprobs or 0
    if not 0 <= top <= MAX_TOP:
        raise InvalidRequest(f"top_logprobs must be between 0 and {MAX_TOP}, not {top}.", param="top_logprobs")
    return top


def _effort(request: AnswerRequest, serving: Serving) -> str | None:
    """Returns Ollama's field `think` as a reasoning effort for the chat template; None where the template decides."""
    asked = request.think
    if asked is None or asked == "":
        return None
    if isinstance(asked, str) and asked not in LEVELS:
        raise InvalidRequest(f"think must be true, false or one of {', '.join(LEVELS)}.", param="think")
    if not serving.format.thinks:
        if asked is False:
            return None
        raise InvalidRequest(f'"{request.model}" does not support thinking', param="think")
    if isinstance(asked, str):
        return asked
    has_levels = serving.template is not None and EFFORT in serving.template.variables
    if asked:
        return "medium"
    return "low" if has_levels else "none"
