"""Groups of settings: typed fields, each with its value and its reason."""

from __future__ import annotations

import ast
import re
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path
from unittest.mock import Mock

import pytest

from twostroke.assembly import device as placing
from twostroke.assembly.settings import engine_settings, server_settings
from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    DeviceSettings,
    MemorySettings,
    StepSettings,
)
from twostroke.assembly.settings.option import Field, Group, Option, Setting
from twostroke.assembly.settings.options import BY_NAME
from twostroke.assembly.settings.resolver import Resolved, Resolver, collect
from twostroke.assembly.settings.server_settings import ListenSettings, NameSettings
from twostroke.backends.cuda import limits
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import KVKind

ROOT = Path(__file__).resolve().parent.parent.parent
GROUPS = [
    each
    for module in (engine_settings, server_settings)
    for each in vars(module).values()
    if isinstance(each, type) and issubclass(each, Group) and each is not Group
]
BY_TEXT = ("pick", "put", "asked_value", "source_of", "forget", "ask_instead", "reason_of")


def test_every_field_is_a_setting_with_a_name_of_its_own():
    names = [each.name for group in GROUPS for each in fields(group)]
    assert all(isinstance(each.default, Field) for group in GROUPS for each in fields(group))
    assert all(each.default.name == each.name for group in GROUPS for each in fields(group))
    assert [name for name, count in Counter(names).items() if count > 1] == []


def test_every_option_has_a_flag_and_a_variable():
    options = [option for group in GROUPS for option in group.options()]
    assert {option.name: option for option in options} == BY_NAME
    assert BY_NAME["kv_format"].flag == "--kv-format"


def test_a_group_has_values_by_attribute_and_the_reason_of_each():
    resolver = Resolver(collect({"kv_format": "int4"}, {}))
    resolver.pick(CacheSettings.kv_format, "int8", "default")
    resolver.put(CacheSettings.kv_memory, 100, "what is free")
    resolved = resolver.resolved()
    assert (resolved.cache.kv_format, resolved.cache.kind, resolved.cache.kv_memory) == ("int4", KVKind.INT4, 100)
    assert resolved.reason_of(CacheSettings.kv_format) == "--kv-format"
    assert CacheSettings.kv_memory.setting_of(resolved.cache) == Setting("kv_memory", 100, "what is free")
    assert resolved.values(CacheSettings.kv_memory, CacheSettings.kv_format) == {"kv_memory": 100, "kv_format": "int4"}
    assert resolved["kv_memory"] == 100, "users of LLM.resolved read by name"


def test_a_setting_that_is_settled_again_has_its_last_value_and_reason_in_its_first_place():
    resolver = Resolver({})
    resolver.put(DeviceSettings.device, "cuda:0", "a GPU")
    resolver.put(CacheSettings.kv_memory, 100, "what is free")
    resolver.put(DeviceSettings.device, "cpu", "auto: the GPU cannot guess")
    resolved = resolver.resolved()
    assert (resolved.device.device, resolved["device"]) == ("cpu", "cpu")
    assert resolved.reason_of(DeviceSettings.device) == "auto: the GPU cannot guess"
    assert [each.name for each in resolved.settings] == ["device", "kv_memory"], "each setting is shown once"


def test_auto_shows_the_processor_where_the_device_cannot_guess(monkeypatch):
    """`twostroke config` shows where the model runs, and not where it was first meant to run."""
    device, guessing = Mock(), Mock(programs=("a draft",))
    monkeypatch.setattr(limits, "lacking", lambda program: f"no kernels for {program}")
    resolver = Resolver(collect({"device": "auto"}, {}))
    resolver.put(DeviceSettings.device, "cuda:0", "a GPU")
    assert placing.able_to_guess(device, guessing, resolver) is None
    assert device.close.called
    setting = DeviceSettings.device.setting_of(resolver.resolved().device)
    assert setting.value == "cpu" and "no kernels for a draft" in setting.reason


def test_a_setting_that_is_not_settled_is_an_error_that_names_it():
    with pytest.raises(AttributeError, match=r"kv_tokens of CacheSettings is not settled"):
        Resolver({}).resolved().cache.kv_tokens  # noqa: B018
    with pytest.raises(AttributeError):
        Resolver({}).resolved().cache.kv_fromat  # noqa: B018


def test_settings_are_frozen():
    steps = StepSettings(context=Setting("context", 2048, "a test"), itl=Setting("itl", 0.05, "a test"))
    with pytest.raises(AttributeError):
        steps.context = Setting("context", 1, "changed")
    assert steps.context == 2048 and not steps.has(StepSettings.ttft)


def test_bytes_are_added_with_and_without_places_for_adapters():
    names = ("weight_bytes", "buffer_bytes", "table_bytes", "process_bytes")
    settled = {name: Setting(name, 10**place, "a test") for place, name in enumerate(names)}
    assert MemorySettings.of(settled).total == 1111
    assert MemorySettings.of({**settled, "adapter_bytes": Setting("adapter_bytes", 8000, "a test")}).total == 9111


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("a.org,b.org", ("a.org", "b.org")),
        (("a.org,b.org", "B.org"), ("a.org", "b.org")),
        (["*"], ("*",)),
    ],
)
def test_names_may_be_given_several_times_and_count_once(given, expected):
    assert Resolver(collect({"allow_host": given}, {})).asked_value(ListenSettings.allow_host) == expected


@pytest.mark.parametrize("given", [{"a": "x", "b": "y"}, ["a=x", "b=y"], "a=x,b=y"])
def test_adapters_are_a_mapping_a_list_or_one_text(given):
    asked = Resolver(collect({"adapter": given}, {})).asked_value(AdapterSettings.adapter)
    assert asked == (("a", "x"), ("b", "y"))


def test_a_wrong_text_is_named_with_its_source():
    with pytest.raises(ConfigError, match=r"the variable TWOSTROKE_SERVED_NAME has the value 'a,,b'"):
        collect({}, {NameSettings.served_name.name: "a,,b"})
    with pytest.raises(ConfigError, match=r"--api-key has a wrong value: it is empty"):
        collect({ListenSettings.api_key.name: " "}, {})


def read_by_name(text: str) -> list[str]:
    """The places where code reads or sets a setting by its name in quotes."""
    names = {each.name for group in GROUPS for each in fields(group)}
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            owner = ast.unparse(node.value).removesuffix("()").rpartition(".")[2]
            if owner == "resolved" and node.slice.value in names:
                found.append(ast.unparse(node))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in BY_TEXT:
            if node.args and isinstance(node.args[0], ast.Constant) and node.args[0].value in names:
                found.append(ast.unparse(node))
    return found


def test_no_code_reads_a_setting_by_its_name_in_quotes():
    assert read_by_name('a = llm.resolved["weights"]\nresolver.pick("threads", 1, "")\n') == [
        "llm.resolved['weights']",
        "resolver.pick('threads', 1, '')",
    ]
    files = [path for folder in ("src", "tools") for path in (ROOT / folder).rglob("*.py")]
    assert [(path.name, each) for path in files for each in read_by_name(path.read_text())] == []


@cache
def attributes_in(folder: Path, *apart: str) -> frozenset[str]:
    """The names of all attributes in the files below a folder."""
    texts = (path.read_text() for path in folder.rglob("*.py") if path.name not in apart)
    return frozenset(name for text in texts for name in re.findall(r"\.(\w+)", text))


@pytest.mark.parametrize("name", BY_NAME)
def test_every_option_is_settled_and_a_part_of_the_program_reads_it(name: str) -> None:
    definitions = ("engine_settings.py", "server_settings.py")
    src = ROOT / "src" / "twostroke"
    asked_alone = {option.name for option in server_settings.SeveralSettings.options()}
    assert name in asked_alone | attributes_in(src / "assembly", *definitions), "no `resolver.pick` settles it"
    assert name in attributes_in(src, *definitions, "config.py"), "it is settled, and nothing uses its value"


def test_every_group_of_a_resolved_engine_or_server_is_in_resolved():
    of_resolved = {type(each.default) for each in fields(Resolved) if isinstance(each.default, Group)}
    asked_alone = {engine_settings.ClusterSettings, server_settings.SeveralSettings}
    assert of_resolved | asked_alone == set(GROUPS) and not of_resolved & asked_alone
    assert all(isinstance(option, Option) for option in AdapterSettings.options())
