"""A checkpoint's own description of its answers, where no format by hand reads what the template writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.text.talk.reading import read
from tests.text.talk.templates import template
from tests.text.talk.test_find import PLAIN, Words
from twostroke.text.talk.learn.described import described, literals
from twostroke.text.talk.learn.find import find_format
from twostroke.text.templates.chat_template import ChatTemplate

FUNCTION = {"type": "function", "function": {"name": "{name}", "arguments": "{content}"}}
THOUGHT = {"open": "<muse>", "close_pattern": r"</muse>\s*", "content": "text"}
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "object": (
        {"open": "<do>", "close_pattern": r"</do>\s*", "repeats": True, "content": "json"},
        '<do>{"name": "hours", "arguments": {"day": "Mon"}}</do>',
    ),
    "object with other names": (
        {"open": "<do>", "close": "</do>", "content": "json",
         "transform": {"type": "function", "function": {"name": "{content.tool}", "arguments": "{content.with}"}}},
        '<do>{"tool": "hours", "with": {"day": "Mon"}}</do>',
    ),
    "named": (
        {"open_pattern": r"<\|act\|>(?P<name>\w+)<\|with\|>", "close_pattern": r"<\|/act\|>\s*", "content": "json",
         "transform": FUNCTION},
        '<|act|>hours<|with|>{"day": "Mon"}<|/act|>',
    ),
    "tagged": (
        {"open_pattern": r"<run>(?P<name>\S+)\n?", "close_pattern": r"</run>\s*", "content": "xml-inline",
         "content_args": {"tag_pattern": r"<k>(?P<key>[^<]+)</k>\s*<v>(?P<value>.*?)</v>"}, "transform": FUNCTION},
        "<run>hours\n<k>day</k><v>Mon</v></run>",
    ),
    "braces": (
        {"open_pattern": r"<\|do>call:(?P<name>\w+)", "close_pattern": r"<do\|>\s*", "content": "json",
         "content_args": {"string_delims": [["<|q|>", "<|q|>"]], "unquoted_keys": True}, "transform": FUNCTION},
        "<|do>call:hours{day:<|q|>Mon<|q|>}<do|>",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_description_is_a_format(name: str) -> None:
    calls, raw = CALLS[name]
    form = described({"version": 1, "fields": {"reasoning_content": THOUGHT, "tool_calls": calls, "content": {}}})
    assert form is not None
    turn = read(form, [f"<muse>Hm.</muse>I look.{raw}"])
    assert (turn.content, turn.thought) == ("I look.", "Hm.")
    assert [(called, json.loads(arguments)) for called, arguments, _ in turn.calls] == [("hours", {"day": "Mon"})]


FUNCTION_OF_JSON = {"x-parser": "json", "x-parser-args": {"transform": "{type: 'function', function: @}"}}
OLDER: dict[str, tuple[dict[str, Any], str]] = {
    "object": (
        {"x-regex-iterator": r"<do>\s*(.*?)\s*</do>", "items": FUNCTION_OF_JSON},
        '<do>{"name": "hours", "arguments": {"day": "Mon"}}</do>',
    ),
    "object with other names": (
        {"x-regex-iterator": r"<\|do\|>(.+?)<\|end\|>", "items": {
            "x-parser": "json",
            "x-parser-args": {"transform": "{type: 'function', function: {name: tool, arguments: with}}"},
        }},
        '<|do|>{"tool": "hours", "with": {"day": "Mon"}}<|end|>',
    ),
    "named": (
        {"x-regex-iterator": r"<act>(.*?)<\/act>", "items": {"properties": {"function": {
            "x-regex": r"(?P<name>\w+)<with>(?P<arguments>\{.*\})", "properties": {"arguments": {"x-parser": "json"}},
        }}}},
        '<act>hours<with>{"day": "Mon"}</act>',
    ),
    "braces": (
        {"x-regex-iterator": r"<\|do>(.*?)<do\|>", "items": {"properties": {"function": {
            "x-regex": r"call\:(?P<name>\w+)(?P<arguments>\{.*\})",
            "properties": {"arguments": {"x-parser": "gemma4-tool-call"}},
        }}}},
        '<|do>call:hours{day:<|"|>Mon<|"|>}<do|>',
    ),
    "tagged": (
        {"x-regex-iterator": r"<run=(?P<name>[^>\n]+)>(?P<arguments>.*?)</run>", "items": {"properties": {
            "arguments": {"x-regex-key-value": r"<k=(?P<key>[^>\n]+)>(?P<value>.*?)</k>"},
        }}},
        "<run=hours><k=day>Mon</k></run>",
    ),
}


@pytest.mark.parametrize("name", OLDER)
def test_an_older_description_is_a_format(name: str) -> None:
    calls, raw = OLDER[name]
    thinking = {"type": "string", "x-regex": r"<muse>\n?(.*?)\n?</muse>"}
    form = described({"type": "object", "properties": {"thinking": thinking, "tool_calls": calls, "content": {}}})
    assert form is not None
    turn = read(form, [f"<muse>Hm.</muse>I look.{raw}"])
    assert (turn.content, turn.thought) == ("I look.", "Hm.")
    assert [(called, json.loads(arguments)) for called, arguments, _ in turn.calls] == [("hours", {"day": "Mon"})]


@pytest.mark.parametrize("calls", [
    {"x-regex-iterator": r"<a>(?=x)(.*?)</a>", "items": FUNCTION_OF_JSON},
    {"x-regex-iterator": r"(.*?)", "items": FUNCTION_OF_JSON},
    {"x-regex-iterator": r"<a>(.*?)</a>", "items": {"x-parser": "yaml"}},
    {"x-regex-iterator": 7, "items": []},
    {"x-regex-iterator": r"<a>(.*?)</a>", "items": {"properties": {"function": {"x-regex": r"(?P<name>\w+)"}}}},
])
def test_an_older_description_that_cannot_be_translated_is_not_used(calls: Any) -> None:
    thinking = {"x-regex": "<muse>(.*?)</muse>"}
    assert described({"properties": {"thinking": thinking, "tool_calls": calls}}) is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        {},
        {"fields": []},
        {"fields": {"content": {"content": "text"}}},
        {"fields": {"tool_calls": {"open_pattern": r"(?=.*)x+", "close": "</x>", "content": "json"}}},
        {"fields": {"tool_calls": {"open": 3, "close": None}}},
        {"fields": {"tool_calls": {"open": "<x>", "close": "</x>", "content": "kv-lines"}}},
    ],
)
def test_what_cannot_be_translated_is_not_used(value: Any) -> None:
    assert described(value) is None


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        (r"</a>\s*", ["</a>"]),
        (r"<\|a\|>\s*|$", ["<|a|>"]),
        (r"(?:<a>|<b>)\s*", ["<a>"]),
        (r"<a>(?P<name>\S+)\n?", ["<a>", "\n"]),
        (r"[ab]", None),
        (r'\{"name":\s*"(?P<name>\w+)"', None),
        (r"</k>\s*<v>", ["</k><v>"]),
        (r"a+", None),
        (7, None),
    ],
)
def test_literals_of_a_pattern(pattern: Any, parts: list[str] | None) -> None:
    assert literals(pattern) == parts


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("response_template", {"fields": {"tool_calls": CALLS["named"][0]}}),
        ("response_schema", {"properties": {"tool_calls": OLDER["named"][0]}}),
    ],
)
def test_a_folders_description_tells_the_format(key: str, said: Any, tmp_path: Path) -> None:
    """The template writes no call, so it shows none."""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": PLAIN, key: said}))
    made = ChatTemplate.from_folder(tmp_path)
    assert made is not None
    form = find_format(made, Words())
    assert form.name == "described" and "checkpoint" in form.note


def test_a_description_that_does_not_read_the_template_is_not_used() -> None:
    source = template("EACH<do>{{ {'tool': NAME, 'with': ARGS} | tojson }}</do>{% endfor %}")
    source.described = {"fields": {"tool_calls": CALLS["object"][0]}}
    assert find_format(source, Words("</s>")).name == "derived"
