"""Tool calls and reasoning: known answers for each style, and the same answer however the text is cut."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twostroke.text.reasoning import STYLES as REASONING
from twostroke.text.reasoning import begins_inside, reasoning_style
from twostroke.text.tools.pieces import CallArguments, CallBegan, Piece, Said, Thought, joined
from twostroke.text.tools.prompt import with_tools
from twostroke.text.tools.styles import STYLES, style_of_template
from twostroke.text.turn import Turn, TurnForm

NAMES = ("get_weather", "add")
WEATHER = '{"city": "Paris {\\"x\\"}"}'
ADD = '{"a": 1, "b": [2, {"c": null}]}'
THINK = REASONING[0]


def read(style: str, text: str, cuts: Sequence[int] = (), form: TurnForm | None = None) -> list[Piece]:
    """The whole text through a turn, cut at these places."""
    turn = Turn(form or TurnForm(None, STYLES[style]), NAMES)
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [piece for a, b in zip(places, places[1:], strict=False) for piece in turn.feed(text[a:b])]
    return joined([*pieces, *turn.finish()])


def hermes(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def v3(name: str, arguments: str) -> str:
    return f"<｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{arguments}\n```<｜tool▁call▁end｜>"


def v31(name: str, arguments: str) -> str:
    return f"<｜tool▁call▁begin｜>{name}<｜tool▁sep｜>{arguments}<｜tool▁call▁end｜>"


def xml(name: str, **arguments: str) -> str:
    written = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
    return f"<tool_call>\n<function={name}>\n{written}</function>\n</tool_call>"


def deepseek(*calls: str) -> str:
    return f"<｜tool▁calls▁begin｜>{chr(10).join(calls)}<｜tool▁calls▁end｜>"


TWO = [CallBegan(0, "get_weather"), CallArguments(0, WEATHER), CallBegan(1, "add"), CallArguments(1, ADD)]
ANSWERS: list[tuple[str, str, list[Piece]]] = [
    ("hermes", hermes("get_weather", WEATHER) + "\n" + hermes("add", ADD), TWO),
    ("hermes", "I look. \n" + hermes("add", ADD), [Said("I look."), CallBegan(0, "add"), CallArguments(0, ADD)]),
    ("hermes", hermes("add", "{}") + "\nDone. ", [CallBegan(0, "add"), CallArguments(0, "{}"), Said("Done. ")]),
    ("hermes", '<tool_call>{"name": "add"}</tool_call>', [CallBegan(0, "add"), CallArguments(0, "{}")]),
    (
        "hermes",
        '<tool_call>{"arguments": {"a": 1}, "id": 7, "name": "add"}</tool_call>',
        [CallBegan(0, "add"), CallArguments(0, '{"a": 1}')],
    ),
    (
        "hermes",
        '<tool_call>{"name": "add", "arguments": "{\\"a\\": 1}"}</tool_call>',
        [CallBegan(0, "add"), CallArguments(0, '{"a": 1}')],
    ),
    ("hermes", "a <tool_call> b </tool_call>", [Said("a <tool_call> b </tool_call>")]),
    ("hermes", '<tool_call>{"x": 1}', [Said('<tool_call>{"x": 1}')]),
    ("hermes", '<tool_call>{"name": "add", "argum', [CallBegan(0, "add")]),
    ("hermes", "a < b <tool", [Said("a < b <tool")]),
    ("llama3", '{"name": "add", "parameters": ' + ADD + "}", [CallBegan(0, "add"), CallArguments(0, ADD)]),
    (
        "llama3",
        f'<|python_tag|>{{"name": "get_weather", "parameters": {WEATHER}}}; {{"name": "add", "parameters": {ADD}}}',
        TWO,
    ),
    ("llama3", '{"name": "Bob", "age": 3} ', [Said('{"name": "Bob", "age": 3} ')]),
    ("llama3", '{"name": "add", "parameters": {}}\nok', [CallBegan(0, "add"), CallArguments(0, "{}"), Said("ok")]),
    ("llama3", ' Look: {"name": "add"}', [Said(' Look: {"name": "add"}')]),
    (
        "mistral",
        f'[TOOL_CALLS] [{{"name": "get_weather", "arguments": {WEATHER}}}, {{"name": "add", "arguments": {ADD}}}]',
        TWO,
    ),
    ("mistral", f"[TOOL_CALLS]get_weather[ARGS]{WEATHER}[TOOL_CALLS]add[CALL_ID]abc123def[ARGS]{ADD}", TWO),
    ("mistral", "x [TOOL_CALLS]add{}", [Said("x"), CallBegan(0, "add"), CallArguments(0, "{}")]),
    ("mistral", "see [TOOL_CALLS]", [Said("see [TOOL_CALLS]")]),
    ("mistral", "[TOOL_CALLS] " + "n" * 300 + "{}", [Said("[TOOL_CALLS]" + "n" * 300 + "{}")]),
    ("deepseek", deepseek(v3("get_weather", WEATHER), v3("add", ADD)), TWO),
    ("deepseek", deepseek(v31("get_weather", WEATHER), v31("add", ADD)), TWO),
    ("deepseek", "Hm.\n\n" + deepseek(v31("add", "")), [Said("Hm."), CallBegan(0, "add"), CallArguments(0, "{}")]),
    ("deepseek", "plain", [Said("plain")]),
    (
        "qwen3_coder",
        "I look.\n" + xml("add", a='x "y"\n</p', b="") + "\n" + xml("none"),
        [
            Said("I look."),
            CallBegan(0, "add"),
            CallArguments(0, '{"a": "x \\"y\\"\\n</p", "b": ""}'),
            CallBegan(1, "none"),
            CallArguments(1, "{}"),
        ],
    ),
    ("qwen3_coder", "<function=add>\n</function>ok", [CallBegan(0, "add"), CallArguments(0, "{}"), Said("ok")]),
    ("qwen3_coder", "<function=sub>\n</function>", [Said("<function=sub>\n</function>")]),
    (
        "qwen3_coder",
        "<tool_call><function=add><parameter=a>1</parameter><parameter=a>2</parameter></tool_call>",
        [CallBegan(0, "add"), CallArguments(0, '{"a": "1"}')],
    ),
    ("qwen3_coder", "<tool_call> no </tool_call>", [Said("<tool_call> no </tool_call>")]),
    ("qwen3_coder", "<tool_call>\n<function=a b>", [Said("<tool_call>\n<function=a b>")]),
    (
        "qwen3_coder",
        "<tool_call>\n<function=add>\n<parameter=a>\nbroken\n</param",
        [CallBegan(0, "add"), CallArguments(0, '{"a": "broken')],
    ),
    ("qwen3_coder", "<tool_call>\n<functi", [Said("<tool_call>\n<functi")]),
]


@pytest.mark.parametrize(("style", "text", "expected"), ANSWERS)
def test_known_answers_whole_and_character_by_character(style: str, text: str, expected: list[Piece]) -> None:
    assert read(style, text) == expected
    assert read(style, text, range(len(text))) == expected


FRAGMENTS = st.sampled_from(
    [
        *(text for _, text, _ in ANSWERS),
        "<tool_call>",
        "</tool_call>",
        "[TOOL_CALLS]",
        "[ARGS]",
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁sep｜>",
        "<|python_tag|>",
        "<function=",
        "<function=add>",
        "</function>",
        "<parameter=",
        "<parameter=a>",
        "</parameter>",
        "<think>",
        "</think>",
        '{"name": "add", ',
        '"arguments": "x\\\\"',
        "} ]; ,",
        " \n\t ",
        "\u00a0\u2028",
    ]
)
TEXTS = st.lists(FRAGMENTS | st.text(max_size=12) | st.text('<>{}[]":,; \\nT/', max_size=12), max_size=6).map("".join)


@given(st.sampled_from(sorted(STYLES)), st.booleans(), TEXTS, st.lists(st.integers(0, 400), max_size=40))
def test_any_cut_gives_the_same(style: str, thinks: bool, text: str, cuts: list[int]) -> None:
    form = TurnForm(THINK if thinks else None, STYLES[style])
    whole = read(style, text, (), form)
    assert read(style, text, cuts, form) == whole
    indexes = [piece.index for piece in whole if isinstance(piece, CallBegan)]
    assert indexes == list(range(len(indexes)))
    begun = -1
    for piece in whole:
        begun = piece.index if isinstance(piece, CallBegan) else begun
        assert not isinstance(piece, CallArguments) or piece.index == begun


@given(st.sampled_from(sorted(STYLES)), st.text('ab <>[]|{}":', max_size=60), st.lists(st.integers(0, 60), max_size=9))
def test_text_without_calls_is_never_changed(style: str, text: str, cuts: list[int]) -> None:
    assert "".join(piece.text for piece in read(style, text, cuts) if isinstance(piece, Said)) == text


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(st.dictionaries(st.text(max_size=6), JSON_VALUES, max_size=3), min_size=1, max_size=3),
    st.sampled_from(["hermes", "llama3", "mistral", "mistral-list", "v3", "v31"]),
    st.booleans(),
    st.lists(st.integers(0, 600), max_size=20),
)
def test_arguments_come_out_as_they_were_written(
    arguments: list[dict[str, object]], kind: str, ascii_only: bool, cuts: list[int]
) -> None:
    written = [json.dumps(value, ensure_ascii=ascii_only) for value in arguments]
    objects = [f'{{"name": "add", "{"parameters" if kind == "llama3" else "arguments"}": {w}}}' for w in written]
    text = {
        "hermes": "\n".join(f"<tool_call>{o}</tool_call>" for o in objects),
        "llama3": ";".join(objects),
        "mistral": "".join(f"[TOOL_CALLS]add[ARGS]{w}" for w in written),
        "mistral-list": f"[TOOL_CALLS][{','.join(objects)}]",
        "v3": deepseek(*(v3("add", w) for w in written)),
        "v31": deepseek(*(v31("add", w) for w in written)),
    }[kind]
    style = "deepseek" if kind in ("v3", "v31") else kind.partition("-")[0]
    made = read(style, text, cuts)
    assert [piece.text for piece in made if isinstance(piece, CallArguments)] == written
    assert not any(isinstance(piece, Said) for piece in made)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\nhm </x> \n</think>\n\nYes.", [Thought("hm </x>"), Said("Yes.")]),
        ("<think></think>Yes", [Said("Yes")]),
        ("Yes <think>no</think>", [Said("Yes <think>no</think>")]),
        ("<think>never en", [Thought("never en")]),
        ("<thi", [Said("<thi")]),
        (
            "<think>a</think>" + hermes("add", "{}"),
            [Thought("a"), CallBegan(0, "add"), CallArguments(0, "{}")],
        ),
        ("<think>" + hermes("add", "{}") + "</think>b", [Thought(hermes("add", "{}")), Said("b")]),
    ],
)
def test_reasoning(text: str, expected: list[Piece]) -> None:
    form = TurnForm(THINK, STYLES["hermes"])
    assert read("hermes", text, (), form) == expected
    assert read("hermes", text, range(len(text)), form) == expected


def test_reasoning_that_the_prompt_opened() -> None:
    assert begins_inside(THINK, "<|assistant|><think>\n") and not begins_inside(THINK, "<think>a</think>")
    turn = Turn(TurnForm(THINK), (), "<|assistant|><think>\n")
    assert turn.reasoning
    assert joined([*turn.feed("so"), *turn.feed("</think>then"), *turn.finish()]) == [Thought("so"), Said("then")]
    assert not turn.reasoning


def test_without_tools_in_the_request_calls_are_text() -> None:
    turn = Turn(TurnForm(None, STYLES["hermes"]))
    assert joined([*turn.feed(hermes("add", "{}")), *turn.finish()]) == [Said(hermes("add", "{}"))]


def test_a_template_without_tools_gets_them_in_a_system_message() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    messages = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "1+1?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "2"},
    ]
    made = with_tools(messages, [{"type": "function", "function": {"name": "add"}}])
    assert made[0]["content"].startswith("Be kind.\n\nYou can call tools.") and '"name": "add"' in made[0]["content"]
    assert [message["role"] for message in made] == ["system", "user", "assistant", "user"]
    assert read("hermes", made[2]["content"]) == [CallBegan(0, "add"), CallArguments(0, '{"a": 1}')]
    assert made[3]["content"] == "<tool_response>\n2\n</tool_response>"
    assert with_tools(messages[1:2], []) == messages[1:2]
    assert with_tools(messages[1:2], [{"type": "function"}])[0]["role"] == "system"


def test_the_template_decides_the_style() -> None:
    assert style_of_template("{{ messages }} <tool_call>") is None
    assert style_of_template("{% if tools %}<tool_call>") is STYLES["hermes"]
    assert style_of_template("{% if tools %}<tool_call>\n<function=x>\n<parameter=y>") is STYLES["qwen3_coder"]
    assert style_of_template("{% if tools %}[TOOL_CALLS]") is STYLES["mistral"]
    assert style_of_template("{% if tools %}<|python_tag|>") is STYLES["llama3"]
    assert style_of_template("{% if tools %}'<｜tool▁calls▁begin｜>'") is STYLES["deepseek"]
    assert reasoning_style("{{ '<think>' }}</think>") is THINK and reasoning_style("x") is None
