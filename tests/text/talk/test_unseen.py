"""Answers that are no examples of a format's own file: the message that a client must get, at every cut."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct

from tests.text.talk.reading import read
from twostroke.text.talk.catalog import FORMATS

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "metric": {"type": "boolean"},
        "limit": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "where": {"type": "object", "properties": {"lat": {"type": "number"}, "name": {"type": "string"}}},
    },
}
TOOLS: dict[str, Any] = {
    "weather": WEATHER,
    "run_in_terminal": {"type": "object", "properties": {"command": {"type": "string"}}},
    "ping": {"type": "object", "properties": {}},
}


class Case(Struct, frozen=True):
    """calls: (name, arguments)."""

    form: str
    raw: str
    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    prompt: str = ""


def ping() -> tuple[str, dict[str, Any]]:
    return ("ping", {})


def run(command: str) -> tuple[str, dict[str, Any]]:
    return ("run_in_terminal", {"command": command})


def weather(**arguments: Any) -> tuple[str, dict[str, Any]]:
    return ("weather", arguments)


B, E = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
P = "]<]minimax[>["
D = "｜DSML｜"
CASES = (
    Case("hermes", '<tool_call>\n{"arguments": {"city": "Oslo"}, "name": "weather"}\n</tool_call>',
         calls=(weather(city="Oslo"),)),
    Case("hermes", 'Let me see.\n\n<tool_call>\n{"name": "run_in_terminal", "arguments": {"command": "echo '
         '\\"{}\\" > a"}}'
         "\n</tool_call>", "Let me see.", calls=(run('echo "{}" > a'),)),
    Case("hermes", '<think>\nA {"name": "ping"} is JSON.\n</think>\n\nNo call.', "No call.",
         'A {"name": "ping"} is JSON.'),
    Case("hermes", '<tool_call>\n{"name": "ping", "arguments": {}}\n<tool_call>\n{"name": "ping", "arguments": {}}',
         calls=(ping(), ping())),
    Case("hermes", "A < b and <tool is no tag.", "A < b and <tool is no tag."),
    Case("llama3", '<|python_tag|>{"name": "weather", "parameters": {"city": "Oslo", "days": 2}}',
         calls=(weather(city="Oslo", days=2),)),
    Case("llama3", '{"name": "ping", "parameters": {}}; {"name": "ping", "parameters": {}}', calls=(ping(), ping())),
    Case("llama3", '{"name": "Emma", "age": 4}', '{"name": "Emma", "age": 4}'),
    Case("mistral_list", '[TOOL_CALLS][{"name": "weather", "arguments": {"city": "Zürich", "tags": ["a]", "b"]}}]',
         calls=(weather(city="Zürich", tags=["a]", "b"]),)),
    Case("granite3", '<|tool_call|>[{"name": "ping", "arguments": {}}, {"name": "run_in_terminal", "arguments": '
         '{"command": "ls"}}]', calls=(ping(), run("ls"))),
    Case("granite3", "<think>Hm, no.</think><response>It rains.</response>", "It rains.", "Hm, no."),
    Case("phi4_mini", '<|tool_call|>[{"name": "weather", "arguments": {"city": "Rome", "where": {"lat": 1.5}}}]'
         "<|/tool_call|>", calls=(weather(city="Rome", where={"lat": 1.5}),)),
    Case("nemotron", '</think>\n\n<TOOLCALL>[{"name": "ping", "arguments": {}}, {"name": "ping", "arguments": {}}]'
         "</TOOLCALL>", calls=(ping(), ping()), prompt="<think>\n"),
    Case("tool_calls", '<tool_calls>[{"name": "run_in_terminal", "arguments": {"command": "cat </tool_calls>"}}]'
         "</tool_calls>", calls=(run("cat </tool_calls>"),)),
    Case("minimax_m1", '<tool_calls>\n{"name": "run_in_terminal", "arguments": {"command": "a\\nb"}}\n</tool_calls>',
         calls=(run("a\nb"),)),
    Case("functools", ' functools[{"name": "ping", "arguments": {}}, {"name": "weather", "arguments": '
         '{"metric": true}}]', calls=(ping(), weather(metric=True))),
    Case("xlam", '```json\n[{"name": "ping", "arguments": {}}]\n```', calls=(ping(),)),
    Case("xlam", '[{"name": "unknown", "arguments": {}}]', '[{"name": "unknown", "arguments": {}}]'),
    Case("cohere", '<|START_THINKING|>First this.<|END_THINKING|><|START_ACTION|>[\n    {"tool_call_id": "0", '
         '"tool_name": "ping", "parameters": {}},\n    {"tool_call_id": "1", "tool_name": "weather", "parameters": '
         '{"city": "Bonn"}}\n]<|END_ACTION|>', thought="First this.", calls=(ping(), weather(city="Bonn"))),
    Case("cohere", "<|START_TEXT|>Plain.<|END_TEXT|>", "Plain."),
    Case("command_r", 'Action: ```json\n[\n    {\n        "tool_name": "ping",\n        "parameters": {}\n    }\n]```',
         calls=(ping(),)),
    Case("internlm", 'Sure.<|action_start|><|plugin|>\n{"name": "weather", "parameters": {"city": "Ulm"}}<|a'
         'ction_end|>\n',
         "Sure.", calls=(weather(city="Ulm"),)),
    Case("apertus", '<|tools_prefix|>[{"ping": {}}, {"weather": {"city": "Bern"}}]<|tools_suffix|>',
         calls=(ping(), weather(city="Bern"))),
    Case("mistral", 'I check.[TOOL_CALLS]weather[ARGS]{"city": "Nice", "limit": null}', "I check.",
         calls=(weather(city="Nice", limit=None),)),
    Case("mistral", "[THINK]Hm [TOOL_CALLS] is a mark.[/THINK]Yes.", "Yes.", "Hm [TOOL_CALLS] is a mark."),
    Case("deepseek3", f"Wait.{B}<｜tool▁call▁begin｜>function<｜tool▁sep｜>run_in_terminal\n```json\n"
         '{"command": "echo ```"}\n```<｜tool▁call▁end｜>' + E, "Wait.", calls=(run("echo ```"),)),
    Case("deepseek31", f"{B}<｜tool▁call▁begin｜>ping<｜tool▁sep｜>{{}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>weather"
         f'<｜tool▁sep｜>{{"city": "Lyon"}}<｜tool▁call▁end｜>{E}', calls=(ping(), weather(city="Lyon"))),
    Case("kimi", "I run it.<|tool_calls_section_begin|><|tool_call_begin|>functions.run_in_terminal:12"
         '<|tool_call_argument_begin|>{"command": "ls -l"}<|tool_call_end|><|tool_calls_section_end|>', "I run it.",
         calls=(run("ls -l"),)),
    Case("functionary31", '<function=weather>{"city": "Kyiv"}</function><function=ping>{}</function>',
         calls=(weather(city="Kyiv"), ping())),
    Case("functionary32", 'all\nOne moment.>>>weather\n{"city": "Kyiv"}', "One moment.",
         calls=(weather(city="Kyiv"),), prompt=">>>"),
    Case("harmony", "<|channel|>analysis<|message|>Use ping.<|end|><|start|>assistant to=functions.ping"
         "<|channel|>commentary json<|message|>{}<|call|>", thought="Use ping.", calls=(ping(),)),
    Case("harmony", "<|channel|>analysis<|message|>A.<|end|><|start|>assistant<|channel|>analysis<|message|>B.<|end|>"
         "<|start|>assistant<|channel|>final<|message|>Done.", "Done.", "A.B."),
    Case("harmony", "<|channel|>final<|message|>The tag analysis is a word.", "The tag analysis is a word."),
    Case("solar", "<|content|>Hello.<|end|>", "Hello."),
    Case("qwen3_coder", "<tool_call>\n<function=weather>\n<parameter=city>\nSão Paulo\n</parameter>\n<parame"
         "ter=days>\n3\n"
         "</parameter>\n<parameter=metric>\ntrue\n</parameter>\n<parameter=tags>\n[\"x\", \"y\"]\n</parameter>\n"
         "</function>\n</tool_call>", calls=(weather(city="São Paulo", days=3, metric=True, tags=["x", "y"]),)),
    Case("qwen3_coder", "<tool_call>\n<function=run_in_terminal>\n<parameter=command>\ncat <<X\n<b>\n\nX\n</"
         "parameter>\n"
         "</function>\n</tool_call>", calls=(run("cat <<X\n<b>\n\nX"),)),
    Case("qwen3_coder", "Hm.<tool_call>\n<function=ping>\n</function>\n</tool_call>", thought="Hm.", calls=(ping(),),
         prompt="<think>\n"),
    Case("glm", "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Graz</arg_value>\n<arg_key>days</arg_key>\n"
         "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>ping\n</tool_call>",
         calls=(weather(city="Graz", days=2), ping())),
    Case("glm47", "</think><tool_call>run_in_terminal<arg_key>command</arg_key><arg_value>ls\n</arg_value></tool_call>",
         calls=(run("ls\n"),), prompt="<think>"),
    Case("minimax_m2", 'Hm.\n</think>\n\nSee:\n<minimax:tool_call>\n<invoke name="weather">\n<parameter name'
         '="city">Oslo'
         '</parameter>\n<parameter name="days">4</parameter>\n</invoke>\n<invoke name="ping">\n</invoke>\n'
         "</minimax:tool_call>", "See:", "Hm.", (weather(city="Oslo", days=4), ping()), "<think>\n"),
    Case("minicpm5", '<think>\nWhere?\n</think>\n\n<function name="weather"><param name="city">Oslo & Bergen</param>'
         '<param name="tags">[\'x\', "y"]</param><param name="metric">True</param></function>\n'
         '<function name="run_in_terminal"><param name="command"><![CDATA[cat <<X\n</param>]]></param></function>',
         thought="Where?",
         calls=(weather(city="Oslo & Bergen", tags=["x", "y"], metric=True), run("cat <<X\n</param>"))),
    Case("minicpm5", "A <function> has a name.", "A <function> has a name."),
    Case("command_r", 'Hm.\nAction:\n```json\n[\n    {\n        "tool_name": "ping",\n        "parameters": {}\n    }\n'
         "]```\n", "Hm.", calls=(ping(),)),
    Case("dsml", f'\n\n<{D}tool_calls>\n<{D}invoke name="weather">\n<{D}parameter name="city" string="true">5'
         f'</{D}parameter>\n<{D}parameter name="days" string="false">5</{D}parameter>\n</{D}invoke>\n</{D}tool_calls>',
         calls=(weather(city="5", days=5),)),
    Case("seed", "<seed:tool_call>\n<function=weather>\n<parameter=city>Oslo</parameter>\n<parameter=where>"
         '{"lat": 2}</parameter>\n</function>\n</seed:tool_call>', calls=(weather(city="Oslo", where={"lat": 2}),)),
    Case("step3", '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="weather">'
         '<steptml:parameter name="city">Ox</steptml:parameter></steptml:invoke><｜tool_call_end｜>'
         "<｜tool_calls_end｜>",
         calls=(weather(city="Ox"),)),
    Case("longcat", "<longcat_tool_call>weather\n<longcat_arg_key>city</longcat_arg_key>\n<longcat_arg_value>Bath"
         "</longcat_arg_value>\n</longcat_tool_call>", calls=(weather(city="Bath"),)),
    Case("minimax_m3", f'{P}<tool_call>\n{P}<invoke name="weather">{P}<city>Ghent{P}</city>{P}<tags>{P}<item>'
         f"a{P}</item>{P}</tags>{P}<days>2{P}</days>{P}</invoke>\n{P}</tool_call>",
         calls=(weather(city="Ghent", tags=["a"], days=2),)),
    Case("kimi_k3", '<|open|>tools<|sep|><|open|>call tool="weather" index="1"<|sep|><|open|>argument key="city" '
         'type="string"<|sep|>Ypres<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>',
         calls=(weather(city="Ypres"),)),
    Case("llama4", '[weather(city="Pau", tags=["a", "b(c)"], where={"lat": 1.0}), ping()]',
         calls=(weather(city="Pau", tags=["a", "b(c)"], where={"lat": 1.0}), ping())),
    Case("llama4", "[unknown(a=1)]", "[unknown(a=1)]"),
    Case("lfm2", '<|tool_call_start|>[weather(city="Metz", metric=True, limit=None)]<|tool_call_end|>',
         calls=(weather(city="Metz", metric=True, limit=None),)),
    Case("olmo3", '<function_calls>\nweather(city="Gap", metric=false)\nping()\n</function_calls>',
         calls=(weather(city="Gap", metric=False), ping())),
    Case("functiongemma", "<start_function_call>call:weather{city:<escape>Caen<escape>,metric:true}<end_function_call>",
         calls=(weather(city="Caen", metric=True),)),
    Case("gemma4", '<|tool_call>call:weather{city:<|"|>Vaduz<|"|>,tags:[<|"|>a,b<|"|>],where:{lat:2.5}}<tool_call|>'
         "<|tool_call>call:ping{}<tool_call|>",
         calls=(weather(city="Vaduz", tags=["a,b"], where={"lat": 2.5}), ping())),
    Case("gemma4", "<|channel>thought\nHm.\n<channel|>Fine.", "Fine.", "Hm."),
    Case("hunyuan", "<think>\n\n</think>\n<answer>\nIt is fine.\n</answer>", "It is fine."),
    Case("apriel", 'Hm.\n[BEGIN FINAL RESPONSE]\n<tool_calls>[{"name": "ping", "arguments": {}, "id": "0"}]<'
         '/tool_calls>',
         thought="Hm.", calls=(ping(),), prompt="Here are my reasoning steps:\n"),
    Case("hunyuan3", "<tool_calls:opensource>\n<tool_call:opensource>weather<tool_sep:opensource>\n<arg_key:opensource>"
         "city</arg_key:opensource>\n<arg_value:opensource>Linz</arg_value:opensource>\n</tool_call:opensource>\n"
         "</tool_calls:opensource>", calls=(weather(city="Linz"),)),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.form} {case.raw[:24]!r}")
def test_a_client_gets_the_message(case: Case) -> None:
    form = FORMATS[case.form]
    whole = read(form, [case.raw], case.prompt, TOOLS)
    calls = tuple((name, json.loads(arguments)) for name, arguments, _ in whole.calls)
    assert (whole.content, whole.thought, calls) == (case.content, case.thought, case.calls)
    for cut in range(1, len(case.raw)):
        assert read(form, [case.raw[:cut], case.raw[cut:]], case.prompt, TOOLS) == whole


def test_every_format_has_a_case() -> None:
    """dsml32 and mistral_ids differ from dsml and mistral in one mark; only its template identifies atem."""
    assert set(FORMATS) - {case.form for case in CASES} <= {"dsml32", "mistral_ids", "atem"}
