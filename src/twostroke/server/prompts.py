"""Makes a checked request into engine prompts: text to token ids, fields to SamplingParams, everything checked against
limits.

This runs in a worker thread, because templates and tokenizers can take a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import structs

from twostroke.server.api.changed.chat_words import in_chat_words
from twostroke.server.api.changed.room import within_room
from twostroke.server.api.fields.grammar import AskedGrammar, after_thought, grammar_of
from twostroke.server.api.fields.other_engines import unlimited
from twostroke.server.api.fields.reasoning_effort import wish_of, with_wish
from twostroke.server.api.infill import infilled
from twostroke.server.api.legacy_functions import in_old_words, to_tools
from twostroke.server.api.model_list import adapter_of, asked_model
from twostroke.server.api.schema import (
    ChatRequest,
    CheckedChat,
    CompletionRequest,
    GenerationRequest,
    checked_chat,
    read_completion,
)
from twostroke.server.api.tool_use import ToolUse, special_ids_of, tool_use
from twostroke.server.calls import PLAIN, AnswerTurn, Call, Delivery
from twostroke.server.gate.decode import decode
from twostroke.server.given_prompts import read_prompt, shown_text, split_prompts
from twostroke.server.serving import Serving
from twostroke.text.history.legal_ids import call_ids_of, with_legal_ids
from twostroke.text.history.parts import text_of
from twostroke.text.params_in_tokens import in_tokens
from twostroke.text.talk.format import Format
from twostroke.text.talk.speaker import BegunAnswer, Speaker
from twostroke.text.talk.switches import with_system
from twostroke.text.templates.chat_template import ChatTemplate
from twostroke.text.templates.pictures import WithPictures
from twostroke.text.templates.quoting import Quoting, Rendered
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar
from twostroke.types.images import ImageSpan, with_places
from twostroke.types.notes import Notes
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.output import Prompt
from twostroke.types.sampling.open_values import filled
from twostroke.types.sampling.sampler_fields import FIELD_NAMES
from twostroke.types.sampling.sampling_params import SamplingParams

_T = TypeVar("_T")
DEFAULT_COMPLETION_TOKENS = 16
ANY_SEED = -1
"""The value that clients of other servers send to get a new random seed."""
RENDERED_END_CHARACTERS = 64
_PLAIN_FIELDS = (
    "temperature",
    "top_k",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "min_p",
    "repetition_penalty",
    "ignore_eos",
    "min_tokens",
    "repetition_window",
    "allowed_token_ids",
    "best_of",
    "use_beam_search",
    "length_penalty",
    "early_stopping",
    *FIELD_NAMES,
)


class _Encoded(NamedTuple):
    """A prompt in tokens, with the parameters of its answers. shown_token_ids: special tokens that are part of the
    answer's text nevertheless. images: where the images stand in the prompt."""

    token_ids: Sequence[int]
    params: SamplingParams
    shown_token_ids: frozenset[int] = frozenset()
    images: tuple[ImageSpan, ...] = ()


def salted(call: Call, client: str) -> Call:
    """Returns the request for the engine with the client's label put before the cache salt of each prompt. So pages of
    the prefix tree are never shared between API keys. client: a label whose length is the same for all keys, so that no
    salt that a client writes can equal another client's."""
    own = tuple(replace(prompt, cache_salt=f"{client}:{prompt.cache_salt}") for prompt in call.prompts)
    return replace(call, prompts=own)


def chat_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of a chat request. Returns its prompt for the engine, and how it is to be answered. Raises
    InvalidRequest, ContextLengthExceeded, HttpProblem."""
    request, notes = decode(body, ChatRequest), Notes()
    in_chat_words(request, serving.caps.json_depth, notes)
    if not to_tools(request):
        return call_of_chat(checked_chat(request, serving.caps.json_depth, notes), serving, "chatcmpl-")
    try:
        call = call_of_chat(checked_chat(request, serving.caps.json_depth, notes), serving, "chatcmpl-")
    except InvalidRequest as error:
        raise in_old_words(error) from None
    return replace(call, turn=replace(call.turn, legacy_functions=True))


def call_of_chat(
    checked: CheckedChat, serving: Serving, prefix: str, *, prefill: str = "", asked: Any = None
) -> Call:
    """Returns the prompt for the engine, and how it is to be answered, for a checked chat request from any API. prefix:
    the beginning of the answer's id. prefill: how the answer begins. asked: the client's request, for APIs whose
    answers repeat it.

    Raises InvalidRequest, ContextLengthExceeded, HttpProblem.
    """
    request, notes = checked.request, checked.notes
    logprobs = (request.top_logprobs or 0) if request.logprobs else None
    tools = tool_use(checked)
    prompt, before, thinks = _render(checked, tools, serving, prefill)
    rendered_end = before[-RENDERED_END_CHARACTERS:]
    special_id = special_ids_of(serving.tokenizer)
    form = grammar_of(request)
    notes.add_all(form.not_held)
    if thinks or prompt.text == before:
        form = after_thought(form, serving.format, before, special_id)
    form = _form_of(form, tools.grammar(serving.format, special_id, rendered_end), tools.forced)
    params = _params(request, logprobs, request.max_tokens, form, serving)
    encode = partial(serving.tokenizer.encode_rendered, prompt.text, serving.context_tokens, quoted=prompt.quoted)
    token_ids = _renamed(encode, "messages")
    params = within_room(params, serving.engine.room(len(token_ids)), notes)
    shown = _shown(serving.format, tools, serving.tokenizer)
    images = () if prompt.pictures is None else prompt.pictures.spans(token_ids)
    call = _call(request, prefix, [_Encoded(token_ids, params, shown, images)], logprobs, form, serving)
    turn = AnswerTurn(
        form=_turn_form(serving.format, tools, form),
        tools=tools,
        rendered_end=rendered_end,
        earlier_calls=sum(len(calls) for each in request.messages if isinstance(calls := each.get("tool_calls"), list)),
        earlier_ids=call_ids_of(request.messages),
        hides_thoughts=request.include_reasoning is False,
    )
    return replace(call, turn=turn, asked=asked, warnings=notes.texts)


def prompt_of_chat(checked: CheckedChat, serving: Serving, prefill: str = "") -> Rendered:
    """Returns the prompt's text. prefill: how the answer begins. Raises InvalidRequest, HttpProblem (404)."""
    return _render(checked, tool_use(checked), serving, prefill)[0]


def _render(
    checked: CheckedChat, tools: ToolUse, serving: Serving, prefill: str
) -> tuple[Rendered, str, bool]:
    """Returns the prompt, its text up to the part of the answer that the client wrote, and whether the answer goes on
    inside reasoning.

    Control tokens in the client's texts become ordinary text, unless the client asks for them. With
    continue_final_message, the last message is the beginning of the answer.
    """
    request, notes = checked.request, checked.notes
    template = _template_for(request, serving)
    quoting = Quoting() if request.parse_special else serving.tokenizer.quoting()
    wish = wish_of(request.reasoning_effort, request.thinking)
    put = with_wish(request.chat_template_kwargs, wish, template, serving.format, notes)
    hide, messages = quoting.hide, serving.client_lines.without(with_places(request.messages), notes)
    messages = with_system(with_legal_ids(messages, serving.format.ids), put.system)
    looks = serving.looks or serving.eyes
    pictures = None if looks is None else looks.look(messages)
    if pictures is not None:
        messages = pictures.messages
    speaker = Speaker(
        template if pictures is None else WithPictures(template, pictures.marks),
        serving.format,
        tools=tools.offered,
        variables=put.variables,
        hide=hide,
        notes=notes,
    )
    if request.continue_final_message:
        last, messages = messages[-1], messages[:-1]
        prefill = text_of(last.get("content"), "messages", notes, strict=False) or ""
    elif prefill:
        last = {"role": "assistant", "content": prefill}
    else:
        last = None
    begun = BegunAnswer(speaker.prompt(messages)) if last is None else speaker.continued(messages, last, prefill)
    before = begun.before if pictures is None else pictures.expanded(begun.before)
    whole = structs.replace(quoting.shown(before + hide(begun.text)), pictures=pictures)
    return whole, quoting.shown(before).text, begun.thinks


def _template_for(request: ChatRequest, serving: Serving) -> ChatTemplate:
    asked_model(request.model, serving)
    if serving.template is None:
        raise InvalidRequest(
            f"The model {serving.served_name} has no chat template.",
            param="messages",
            why="It is a base model: it continues text.",
            fix="Use /v1/completions.",
        )
    return serving.template


def _form_of(asked: AskedGrammar, calls: Grammar | None, forced: bool) -> AskedGrammar:
    """Returns the grammar that the answer must fit: that of the requested form, or that of the tool calls. An answer
    that must consist of tool calls has no text, so the requested form of the text is ignored (instructor sends both).
    """
    if calls is None:
        return asked
    if asked.grammar is not None and not forced:
        raise InvalidRequest(
            f"{asked.field} cannot be combined with strict tools that the model may call or not.",
            param=asked.field,
            fix="Send one of them, leave strict out, or force a call with tool_choice.",
        )
    return AskedGrammar(calls, "tools")


def _turn_form(own: Format, tools: ToolUse, asked: AskedGrammar) -> Format:
    """Returns the format by which the answer is parsed. own: the model's format. If a grammar of the request restricts
    the answer, the answer is not searched for tool calls, and for reasoning only where the grammar allows it."""
    if asked.grammar is None or tools.held is not None:
        return own
    return structs.replace(own, calls=()) if asked.grammar.thought else PLAIN


def _shown(form: Format, tools: ToolUse, tokenizer: Tokenizer) -> frozenset[int]:
    """Returns the special tokens whose text the parser of the answer needs."""
    found = map(special_ids_of(tokenizer), form.tokens(calls=bool(tools.schemas)))
    return frozenset(token_id for token_id in found if token_id is not None)


def completion_call(body: bytes, serving: Serving) -> Call:
    """Reads the body of a completion request. Returns its prompts for the engine, and how they are to be answered.
    Raises InvalidRequest, ContextLengthExceeded, HttpProblem."""
    return call_of_completion(read_completion(body, serving.caps.json_depth), serving, "cmpl-")


def call_of_completion(request: CompletionRequest, serving: Serving, prefix: str) -> Call:
    """Returns the prompts for the engine, and how they are to be answered, for a checked completion request from any
    API. prefix: the beginning of the answer's id.

    Raises InvalidRequest, ContextLengthExceeded, HttpProblem.
    """
    asked_model(request.model, serving)
    notes = Notes()
    given = infilled(request, serving, notes) if request.suffix else split_prompts(request.prompt)
    special = request.parse_special is not False
    encode = partial(serving.tokenizer.encode_prompt, context_tokens=serving.context_tokens, parse_special=special)
    read = [read_prompt(prompt, encode, serving.looks or serving.eyes, serving.template) for prompt in given]
    lists = [ids for ids, _ in read]
    asked = grammar_of(request)
    params = [_params(request, request.logprobs, _room(request, ids, serving), asked, serving) for ids in lists]
    notes.add_all(asked.not_held)
    params = [
        within_room(own, serving.engine.room(len(ids)), notes) for ids, own in zip(lists, params, strict=True)
    ]
    if request.echo:
        params = [replace(own, prompt_logprobs=request.logprobs) for own in params]
    encoded = [_Encoded(ids, own, images=spans) for (ids, spans), own in zip(read, params, strict=True)]
    call = _call(request, prefix, encoded, request.logprobs, asked, serving)
    call = replace(call, warnings=notes.texts)
    if not request.echo:
        return call
    # Only at this point are the ids known to be legal.
    return replace(call, echoes=tuple(shown_text(each, serving.tokenizer.decode) for each in given))


def _room(request: CompletionRequest, token_ids: Sequence[int], serving: Serving) -> int:
    """Returns the most tokens of the answer: max_tokens if the request has it, otherwise OpenAI's default of 16. The
    default becomes smaller when the context ends earlier."""
    if request.max_tokens is not None:
        return request.max_tokens
    room = max(1, serving.context_tokens - len(token_ids))
    if unlimited(request):
        return room
    return max(min(DEFAULT_COMPLETION_TOKENS, room), min(request.min_tokens or 0, room))


def _call(
    request: GenerationRequest,
    prefix: str,
    encoded: Sequence[_Encoded],
    logprobs: int | None,
    form: AskedGrammar,
    serving: Serving,
) -> Call:
    n, made = request.n or 1, encoded[0].params.num_answers
    if len(encoded) * made > serving.caps.choices:
        param = "n" if made == n else "best_of"
        raise InvalidRequest(
            f"{len(encoded)} prompts with {param} = {made} are {len(encoded) * made} completions; "
            f"at most {serving.caps.choices} are made in one request.",
            param=param,
        )
    response_id = prefix + serving.new_id()
    prompts = tuple(
        Prompt(
            tuple(each.token_ids),
            each.params,
            f"{response_id}-{place}",
            request.cache_salt or "",
            request.priority or 0,
            objectives=LatencyObjectives(request.ttft_s, request.itl_s),
            speculate=request.speculate,
            adapter=adapter_of(request.model, serving),
            shown_token_ids=each.shown_token_ids,
            images=each.images,
        )
        for place, each in enumerate(encoded)
    )
    _check_all(prompts, "messages" if isinstance(request, ChatRequest) else "prompt", serving)
    return Call(
        response_id=response_id,
        created_s=int(serving.wall_clock()),
        prompts=prompts,
        n=n,
        logprobs=logprobs,
        delivery=_delivery(request),
        grammar_field=form.field,
        model=asked_model(request.model, serving),
    )


def _delivery(request: GenerationRequest) -> Delivery:
    options = request.stream_options
    return Delivery(
        stream=bool(request.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
        progress=bool(request.return_progress),
        timings=bool(request.timings_per_token),
    )


def _params(
    request: GenerationRequest, logprobs: int | None, max_tokens: int | None, form: AskedGrammar, serving: Serving
) -> SamplingParams:
    asked = {name: value for name in _PLAIN_FIELDS if (value := getattr(request, name)) is not None}
    if not request.use_beam_search:  # beam search samples nothing
        asked = filled(asked, serving.defaults)
    if request.seed == ANY_SEED:
        del asked["seed"]
    stop = request.stop
    asked.update(
        n=request.n or 1,
        logprobs=logprobs,
        max_tokens=max_tokens,
        stop=(stop,) if isinstance(stop, str) else tuple(stop or ()),
        stop_token_ids=tuple(request.stop_token_ids or ()),
        grammar=form.grammar,
        bad_words=tuple(request.bad_words or ()),
    )
    try:
        params = SamplingParams(**asked)
    except InvalidRequest as error:
        if error.param == "grammar":
            error.param = form.field  # the name that the client used
        raise
    return in_tokens(params, serving.tokenizer)


def _check_all(prompts: Sequence[Prompt], param: str, serving: Serving) -> None:
    """Lets the engine check the length, the token ids and the parameters of all prompts, before the first prompt is
    queued. param: the field that an error names."""
    for prompt in prompts:
        _renamed(partial(serving.engine.check, prompt), param)


def _renamed(work: Callable[[], _T], param: str) -> _T:
    """Returns the result of `work`. When it refuses the prompt, the error names the field as the client wrote it."""
    try:
        return work()
    except InvalidRequest as error:
        if error.param == "prompt":
            error.param = param
        raise
