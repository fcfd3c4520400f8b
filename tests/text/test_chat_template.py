"""Templates render as transformers renders them, and hostile ones cannot hurt the process."""

from __future__ import annotations

import codecs
import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tools.spark.tokenizer import CHAT_TEMPLATE as SPARK

from twostroke.text.templates.chat_template import ChatTemplate, required
from twostroke.types.errors import ConfigError, CorruptModel, InvalidRequest

from .kinds import byte_level

if TYPE_CHECKING:
    import transformers

CHATML = """{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}
{{- '<|im_start|>system\\nYou are helpful.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

LLAMA2 = """{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}
{%- set system_message = messages[0]['content'] %}
{%- else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}
{%- for message in loop_messages %}
{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}
{%- if loop.index0 == 0 and system_message != false %}
{%- set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}
{%- else %}{% set content = message['content'] %}{% endif %}
{%- if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}
{%- elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"""

LLAMA3 = """{{- bos_token }}
{%- if not date_string is defined %}{%- set date_string = "26 Jul 2024" %}{%- endif %}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}
{{- "<|start_header_id|>system<|end_header_id|>\\n\\n" }}
{{- "Today Date: " + date_string + "\\n\\n" }}{{- system_message }}{{- "<|eot_id|>" }}
{%- for message in messages %}
    {%- if not 'tool_calls' in message %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'}}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- else %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '{"name": "' + tool_call.name + '", "parameters": ' }}{{- tool_call.arguments | tojson }}{{- "}" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

MISTRAL = """{%- set ns = namespace(system='', count=0) %}
{{- bos_token }}
{%- for message in messages %}
    {%- if message['role'] == 'system' %}{% set ns.system = message['content'] %}{% continue %}{% endif %}
    {%- set ns.count = ns.count + 1 %}
    {%- if message.role == 'user' %}
        {%- if loop.last and ns.system %}{{ '[INST] ' ~ ns.system ~ '\\n\\n' ~ message.content ~ '[/INST]' }}
        {%- else %}{{ '[INST] ' ~ message.content ~ '[/INST]' }}{% endif %}
    {%- else %}{{ ' ' + message.content|trim + eos_token }}{% endif %}
{%- endfor %}"""

QWEN = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- for tool in tools %}{{ "\\n" }}{{ tool | tojson }}{% endfor %}
    {{- "<|im_end|>\\n" }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if message.role == "user" and not message.content.startswith('<tool_response>') %}
        {%- set ns.last = index %}{% break %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {%- set content = message.content.split('</think>')[-1].lstrip('\\n') %}
        {% generation %}{{- '<|im_start|>assistant\\n' + content + '<|im_end|>\\n' }}{% endgeneration %}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""

DEEPSEEK_USER = "<｜User｜>"
TEMPLATES = {"chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3, "mistral": MISTRAL, "qwen": QWEN, "spark": SPARK}
TEXTS = {"bos_token": "<s>", "eos_token": "</s>"}
USER = {"role": "user", "content": '  Why <slow> & "what" é 你?\n'}
CHATS: list[list[dict[str, Any]]] = [
    [USER],
    [{"role": "system", "content": "Be brief."}, USER],
    [USER, {"role": "assistant", "content": "<think>hm</think>\n Because. "}, {"role": "user", "content": "And?"}],
]
TOOL = {"type": "function", "function": {"name": "look", "description": "<b>é</b>", "parameters": {"a": [1, None]}}}


@pytest.fixture(scope="module")
def judge() -> transformers.PreTrainedTokenizerFast:
    import transformers

    return transformers.PreTrainedTokenizerFast(tokenizer_object=byte_level(), bos_token="<s>", eos_token="</s>")


def one(source: str, **options: Any) -> ChatTemplate:
    return ChatTemplate({"default": source}, TEXTS, **options)


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("prompted", [True, False])
@pytest.mark.parametrize("tools", [None, [TOOL]])
def test_same_text_as_transformers(
    name: str, chat: list[dict[str, Any]], prompted: bool, tools: Any, judge: transformers.PreTrainedTokenizerFast
) -> None:
    theirs = judge.apply_chat_template(
        chat, chat_template=TEMPLATES[name], tools=tools, add_generation_prompt=prompted, tokenize=False
    )
    assert one(TEMPLATES[name]).render(chat, add_generation_prompt=prompted, tools=tools) == theirs


def test_variables_that_the_template_asks_for(judge: transformers.PreTrainedTokenizerFast) -> None:
    ours = one(QWEN).render([USER], variables={"enable_thinking": False})
    assert ours == judge.apply_chat_template(
        [USER], chat_template=QWEN, enable_thinking=False, add_generation_prompt=True, tokenize=False
    )
    for name in ("messages", "bos_token", "tools", "add_generation_prompt", "chat_template", "tokenize", "range"):
        with pytest.raises(InvalidRequest, match="no variable"):
            one(QWEN).render([USER], variables={name: "x"})


def test_tool_calls_are_given_as_objects() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": "<é>"}'}}
    text = one(LLAMA3).render([USER, {"role": "assistant", "content": None, "tool_calls": [call]}])
    assert '{"name": "f", "parameters": {"a": "<é>"}}' in text
    assert call["function"]["arguments"] == '{"a": "<é>"}'


def test_parts_and_roles() -> None:
    template = one(SPARK)
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert template.render([{"role": "user", "content": parts}]) == template.render(
        [{"role": "user", "content": "a\nb"}]
    )
    assert "<|system|>" in template.render([{"role": "developer", "content": "x"}, USER])
    for message in (
        {"role": "king", "content": "x"},
        {"role": "user"},
        {"content": "x"},
        {"role": "user", "content": 3},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]},
        "hello",
    ):
        with pytest.raises(InvalidRequest) as caught:
            template.render([USER, message])  # type: ignore[list-item]
        assert (caught.value.param or "").startswith("messages[1]")
    with pytest.raises(InvalidRequest, match="empty"):
        template.render([])


def test_the_templates_own_complaint_reaches_the_user() -> None:
    complains = "{{ raise_exception('Nobody may speak.') }}"
    with pytest.raises(InvalidRequest, match="Nobody may speak"):
        one(complains).render([USER, USER])


HOSTILE = {
    "repeat": "{{ 'A' * 10**9 }}",
    "power": "{{ (9**999) ** (9**99) }}",
    "double": "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "add": "{% set ns = namespace(x='aa') %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
    "range": "{% for i in range(10**9) %}{% endfor %}",
    "percent": "{{ '%999999999d' % 1 }}",
    "star": "{{ '%*d' % (999999999, 1) }}",
    "format": "{{ '{:999999999}'.format(1) }}",
    "nested format": "{{ '{:{}}'.format(1, 999999999) }}",
    "format filter": "{{ '%999999999d' | format(1) }}",
    "pad": "{{ 'a'.ljust(10**9) }}",
    "center": "{{ 'a' | center(10**9) }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "json": "{{ [1] | tojson(indent=10**9) }}",
    "join": "{{ (['aaaaaaaaaa' * 1000000] * 1000000) | join }}",
    "join method": "{{ ''.join(['aaaaaaaaaa' * 1000000] * 1000000) }}",
    "replace": "{{ ('a' * 1000000) | replace('a', 'b' * 1000000) }}",
    "replace method": "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}",
    "batch": "{{ [1] | batch(10**9, 'x') | list }}",
    "output": "{% for i in range(9999) %}{{ 'a' * 100000 }}{% endfor %}",
    "internals": "{{ messages.__class__.__mro__[1].__subclasses__() }}",
    "mutation": "{{ messages.append(1) }}",
    "globals": "{{ raise_exception.__globals__ }}{{ raise_exception.__globals__['json'] }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "namespace": "{% set ns = namespace() %}{% set ns['__class__'] = 1 %}{{ ns.y.z }}",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_templates_end_as_a_bad_request(name: str) -> None:
    with pytest.raises((InvalidRequest, CorruptModel)):
        one(HOSTILE[name], render_limit_s=3.0).render([USER])


def test_endless_loops_are_stopped_and_leave_no_thread() -> None:
    loop = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    with pytest.raises(InvalidRequest, match="did not finish"):
        one(loop, render_limit_s=0.05).render([USER])
    deadline = time.monotonic() + 60
    while any(thread.name == "chat-template" for thread in threading.enumerate()):
        assert time.monotonic() < deadline, "the render thread is still running"
        time.sleep(0.01)


def test_where_templates_are_found(tmp_path: Path) -> None:
    assert ChatTemplate.from_folder(tmp_path) is None
    with pytest.raises(InvalidRequest, match="no chat template"):
        required(None, "base")
    config = tmp_path / "tokenizer_config.json"
    config.write_text(json.dumps({"bos_token": "<s>", "chat_template": "{{ bos_token }}one"}))
    assert required(ChatTemplate.from_folder(tmp_path), "m").render([USER]) == "<s>one"
    named = [{"name": "default", "template": "two"}, {"name": "tool_use", "template": "tools"}]
    config.write_text(json.dumps({"chat_template": named}))
    template = required(ChatTemplate.from_folder(tmp_path), "m")
    assert (template.render([USER]), template.render([USER], tools=[TOOL])) == ("two", "tools")
    (tmp_path / "chat_template.jinja").write_text("three")
    assert required(ChatTemplate.from_folder(tmp_path), "m").render([USER]) == "three"


def text_of(folder: Path, own: Path | None = None, **more: Any) -> str:
    return required(ChatTemplate.from_folder(folder, own), "m").render([USER], **more)


def test_a_processors_file_and_further_named_templates_count(tmp_path: Path) -> None:
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "processor"}))
    (tmp_path / "tokenizer_config.json").write_bytes(codecs.BOM_UTF8 + b'{"bos_token": "<s>"}')
    assert text_of(tmp_path) == "processor"
    extra = tmp_path / "additional_chat_templates"
    extra.mkdir()
    (extra / "tool_use.jinja").write_text("tools")
    assert (text_of(tmp_path), text_of(tmp_path, tools=[TOOL])) == ("processor", "tools")
    named = {"default": "of an object", "tool_use": "with tools"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": named}))
    assert text_of(tmp_path) == "of an object"


def test_a_template_of_ones_own_counts_over_all(tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_text("the model's")
    own = tmp_path / "own.jinja"
    own.write_bytes(codecs.BOM_UTF8 + "mine ü".encode())
    assert text_of(tmp_path, own) == "mine ü"
    held = tmp_path / "own.json"
    held.write_text(json.dumps({"chat_template": [{"name": "default", "template": "one"}]}))
    assert text_of(tmp_path, held) == "one"
    held.write_text("{}")
    own.write_bytes(b"\xff")
    for path in (held, own, tmp_path / "none.jinja", tmp_path):
        with pytest.raises(ConfigError) as caught:
            text_of(tmp_path, path)
        assert "--chat-template" in caught.value.fix


@pytest.mark.parametrize("file", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("place", ["extra_special_tokens", "model_specific_special_tokens", "top"])
def test_named_special_tokens_have_their_texts(tmp_path: Path, file: str, place: str) -> None:
    tokens: dict[str, Any] = {"image_token": "<img>", "audio_token": {"content": "<aud>"}, "eoi_token": None}
    (tmp_path / file).write_text(json.dumps({**(tokens if place == "top" else {place: tokens}), "add_bos_token": True}))
    asked = "{{ image_token }}{{ audio_token }}{{ eoi_token }}{{ add_bos_token }}"
    (tmp_path / "chat_template.jinja").write_text(asked)
    assert text_of(tmp_path) == "<img><aud>"


@pytest.mark.parametrize("value", [3, [1], [{"name": "default"}], "{% for %}"])
def test_broken_templates_are_the_models_fault(tmp_path: Path, value: Any) -> None:
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": value}))
    with pytest.raises(CorruptModel):
        ChatTemplate.from_folder(tmp_path)


ASKED = [{"role": "user", "content": "When?"}]
UNDESCRIBED = {"type": "object", "properties": {"day": {"type": "string"}, "hours": {"type": "array"}}}
BELL = {"type": "function", "function": {"name": "bell", "parameters": UNDESCRIBED}}
FUNCTIONS = "{{ 'Functions: ' + functions + ' on ' + datetime }}{% for m in messages %}{{ m.content }}{% endfor %}"
DESCRIPTIONS = (
    "{% for t in tools %}{{ t.function.description + ':' }}"
    "{% for key, own in t.function.parameters.properties.items() %}"
    "{{ key + ' ' + own.description }}{% if own.type == 'array' %}{{ own['items'].description + '!' }}{% endif %}"
    "{% endfor %}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
)


def test_a_template_that_takes_the_tools_as_a_text_gets_it() -> None:
    template = ChatTemplate({"default": FUNCTIONS}, {})
    text = template.render(ASKED, tools=[BELL])
    assert '"name": "bell"' in text and '"day"' in text and text.endswith("When?")
    assert template.render(ASKED).startswith("Functions: [] on 20")
    assert template.render(ASKED, variables={"functions": "none", "datetime": "now"}) == "Functions: none on nowWhen?"
    optional = ChatTemplate({"default": "{% if functions is defined %}F{% endif %}{{ messages[0].content }}"}, {})
    assert optional.render(ASKED, tools=[BELL]) == "When?"


def test_a_template_that_looks_into_fields_of_a_schema_finds_them_empty() -> None:
    template = ChatTemplate({"default": DESCRIPTIONS}, {})
    assert template.render(ASKED, tools=[BELL]) == ":day hours !When?"
    assert template.render(ASKED) == "When?"


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "<system>D<user>U"),
        ("{# developer #}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}", "<system>D<user>U"),
        (
            "{% for m in messages %}{% if m.role in ('system', 'developer') %}<top>{% else %}<{{ m.role }}>{% endif %}"
            "{{ m.content }}{% endfor %}",
            "<top>D<user>U",
        ),
        (
            "{% for m in messages %}{% if m.role not in ('system', 'developer', 'user') %}"
            "{{ raise_exception('no') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}",
            "<developer>D<user>U",
        ),
    ],
)
def test_a_developer_is_a_system_where_the_template_does_not_know_developers(source: str, shown: str) -> None:
    messages = [{"role": "developer", "content": "D"}, {"role": "user", "content": "U"}]
    assert ChatTemplate({"default": source}, {}).render(messages) == shown
