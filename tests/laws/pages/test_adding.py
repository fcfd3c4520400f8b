"""docs/adding.md is followed exactly: its code becomes files, and the promises of the page about this code are
tested."""

from __future__ import annotations

import ctypes
import importlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from tools.gpu.op_cases import cases_of

import twostroke.models
import twostroke.ops.rows
import twostroke.text.talk.formats.objects
from tests.ops.running import near, reference, results
from tests.runner.memories import memory_of, write_rows
from tests.text.talk.reading import expected as message_of
from tests.text.talk.reading import read, valued
from twostroke.assembly.settings import option, options
from twostroke.assembly.settings import resolver as resolving
from twostroke.assembly.settings.option_values import parse_count
from twostroke.backends.cpu import CpuOps, build, library
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import WorkCounter
from twostroke.cost.work import Work
from twostroke.models.common import registry as models
from twostroke.models.common.work import work_of
from twostroke.ops.products.embed import embed
from twostroke.ops.products.linear import linear
from twostroke.ops.program.check import check
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.op import StoredFormats
from twostroke.ops.program.program import Program
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Size
from twostroke.ops.quant import formats
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.registry import op_modules
from twostroke.ops.registry import registry as ops_registry
from twostroke.ops.rows.gather_rows import gather_rows
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.folder import load_folder, read_folder
from twostroke.runner.forward import OpByOp
from twostroke.text.talk import catalog
from twostroke.types.errors import BackendError, CorruptModel, UnsupportedModel
from twostroke.types.spec.formats import F32, KVKind, WeightFormat, WeightKind
from twostroke.weights.tensors import wanted_tensors

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "adding.md").read_text()
CONFIG: dict[str, Any] = {
    "architectures": ["EchoForCausalLM"],
    "vocab_size": 61,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 136,
    "torch_dtype": "float32",
}
LAYER_SHAPES = {
    **{name: (24, 24) for name in ("q", "k", "v", "o")},
    **{"gate": (136, 24), "up": (136, 24), "down": (24, 136), "norm": (24,)},
}
SHAPES = {"embed.weight": (61, 24), "norm.weight": (24,)} | {
    f"layers.{i}.{name}.weight": shape for i in range(2) for name, shape in LAYER_SHAPES.items()
}


@cache
def block(begin: str) -> str:
    """The code of the page whose first line contains these words, without that line."""
    found = [code for code in re.findall(r"^```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
    line, _, rest = next(code for code in found if begin in code.partition("\n")[0]).partition("\n")
    return rest or line


def test_every_file_that_the_page_names_is_there() -> None:
    named = set(re.findall(r"`((?:src|tests|tools|csrc|docs)/[\w/.]+)`", PAGE))
    new = {path for path in named if f"# {path}" in PAGE or f"// {path}" in PAGE}
    assert len(named) > 20
    assert [path for path in sorted(named - new) if not (ROOT / path).exists() and "NAME" not in path] == []
    for name in set(re.findall(r"`(\w+\.py)`", PAGE)):
        assert list((ROOT / "src").rglob(name)), name


def added(package: ModuleType, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The page's file, as a module of the package while a test runs."""
    short = package.__name__.removeprefix("twostroke.").replace(".", "/")
    (tmp_path / short).mkdir(parents=True)
    (tmp_path / short / f"{name}.py").write_text(block(f"src/twostroke/{short}/{name}.py"))
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path / short)])
    importlib.invalidate_caches()
    return importlib.import_module(f"{package.__name__}.{name}")


@pytest.fixture
def echo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Registers the model of the page, and makes a folder with random weights for it."""
    models.architectures()  # files register at their first import, which must precede the copy
    monkeypatch.setattr(models, "_entries", dict(models._entries))
    models.architectures.cache_clear()
    added(twostroke.models, "echo", tmp_path, monkeypatch)
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    random = np.random.default_rng(1)
    tensors = {name: random.normal(0, 0.3, shape).astype(np.float32) for name, shape in SHAPES.items()}
    save_file(tensors, folder / "model.safetensors")
    yield folder
    models.architectures.cache_clear()
    sys.modules.pop("twostroke.models.echo")


def echo_by_hand(folder: Path, token_ids: list[int]) -> np.ndarray:
    """The logits (T, vocabulary), as the page's first line describes the model."""
    from safetensors.numpy import load_file

    w = {name: tensor.astype(np.float64) for name, tensor in load_file(folder / "model.safetensors").items()}

    def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
        return np.asarray(x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6) * weight)

    x = w["embed.weight"][token_ids]
    count = len(token_ids)
    for i in range(2):
        h = norm(x, w[f"layers.{i}.norm.weight"])
        q, k, v, gate, up = (h @ w[f"layers.{i}.{name}.weight"].T for name in ("q", "k", "v", "gate", "up"))
        q, k, v = (each.reshape(count, 3, 8).transpose(1, 0, 2) for each in (q, k, v))
        scores = q @ k.transpose(0, 2, 1) / np.sqrt(8) + np.triu(np.full((count, count), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        seen = (weights / weights.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(count, 24)
        x = x + seen @ w[f"layers.{i}.o.weight"].T + (gate / (1 + np.exp(-gate)) * up) @ w[f"layers.{i}.down.weight"].T
    return np.asarray(norm(x, w["norm.weight"]) @ w["embed.weight"].T)


def test_the_model_is_found_and_its_tensors_are_listed_and_counted(echo: Path) -> None:
    model = read_folder(echo)
    assert model.architecture == "EchoForCausalLM" in models.architectures()
    assert {tensor.name: tensor.shape for tensor in wanted_tensors(model)} == SHAPES
    assert model.parameters() == sum(int(np.prod(shape)) for shape in SHAPES.values())
    assert model.kv_bytes_per_token(KVKind.F32) == 2 * 2 * 24 * 4  # layers, K and V
    counter = WorkCounter(work_of(model, "f32", KVKind.F32))
    one = counter.step([Segment.decode(7)])
    matrices = 2 * sum(int(np.prod(shape)) for shape in LAYER_SHAPES.values() if len(shape) == 2)
    assert one.head.flops == 2 * 61 * 24
    assert 2 * matrices <= one.weights.flops < 2 * matrices + 2 * 2000  # products, and a few gates and additions
    assert one.attention.flops == 2 * 4 * 24 * 8  # two layers, and eight positions are seen
    with pytest.raises(CorruptModel, match="num_attention_heads"):
        models.read_model({**CONFIG, "num_attention_heads": 0})
    with pytest.raises(UnsupportedModel, match="EchoForCausalLM"):
        models.read_model({**CONFIG, "architectures": ["EchoForCausalLN"]})


def test_a_tensor_that_is_missing_or_too_many_is_named(echo: Path) -> None:
    tensors = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    save_file({**tensors, "layers.0.extra.weight": np.zeros(3, np.float32)}, echo / "model.safetensors")
    with pytest.raises(CorruptModel, match=r"layers\.0\.extra\.weight"):
        load_folder(echo, F32)
    del tensors["layers.1.up.weight"]
    save_file(tensors, echo / "model.safetensors")
    with pytest.raises(CorruptModel, match=r"layers\.1\.up\.weight"):
        load_folder(echo, F32)


def test_the_model_runs_on_the_reference_and_compiled(echo: Path) -> None:
    model, weights = load_folder(echo, F32)
    assert [call.NAME for call in model.program.body].count("feed_forward") == 2
    token_ids, sizes, pages = [5, 60, 0, 17, 17, 3], MemorySizes(2, 32, 8, 8), np.arange(2, dtype=np.int32)
    expected = echo_by_hand(echo, token_ids)
    cpu = CpuOps(None, 2)
    for program, ops in ((model.plain, ReferenceOps()), (model.program, ReferenceOps()), (model.program, cpu)):
        memory = memory_of(model, weights, KVKind.F32, sizes, program)
        forward = cpu.compile(program, memory) if ops is cpu else OpByOp(program, ops, memory)
        found = [forward(write_rows(memory, token_ids[:4], 0, pages)).copy()]
        found += [forward(write_rows(memory, token_ids[i : i + 1], i, pages)).copy() for i in (4, 5)]
        assert np.allclose(np.concatenate(found), expected, atol=1e-4 * np.ptp(expected))
    cpu.close()


@pytest.fixture
def at_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Registers the op of the page."""
    for found in (ops_registry, op_modules):
        found.cache_clear()
    yield added(twostroke.ops.rows, "at_least", tmp_path, monkeypatch)
    for found in (ops_registry, op_modules):
        found.cache_clear()
    sys.modules.pop("twostroke.ops.rows.at_least")


def bounded(module: ModuleType, bounds: tuple[float, ...]) -> Program:
    trace = Tracer()
    x = embed(trace.matrix("embedding", {"wte": 11}, 8), trace.token_ids, trace)
    for least in bounds:
        x = module.at_least(x, least)
    return trace.program(linear(gather_rows(x, trace.logit_rows), trace.matrix("head", {"head": 11}, 8)))


def test_the_op_is_traced_checked_costed_and_fused(at_least: ModuleType) -> None:
    assert ops_registry()["at_least"] is at_least.AtLeast
    trace = Tracer()
    x = trace.rows(Size.TOKENS, 8)
    with pytest.raises(ValueError, match="at_least: x must be"):
        trace.record(at_least.AtLeast(trace.rows(Size.TOKENS, 7), x, 1.0))

    plain = bounded(at_least, (2.0, 0.5, 1.0))
    check(plain)
    calls = [call for call in plain.body if isinstance(call, at_least.AtLeast)]
    formats_ = StoredFormats(formats.format_choice("int8"), KVKind.BF16)
    assert [call.cost(formats_).per_row for call in calls] == [Work(8, activation_bytes=64)] * 3

    fused = fuse(plain, (at_least.fuse_bounds,))
    check(fused)
    assert [call.least for call in fused.body if isinstance(call, at_least.AtLeast)] == [2.0]
    assert fuse(bounded(at_least, (2.0,)), (at_least.fuse_bounds,)).calls[1].operands()[2] == 2.0
    x_rows = np.random.default_rng(2).normal(0, 2, (5, 8)).astype(np.float32)
    step_by_step, at_once = x_rows.copy(), np.empty_like(x_rows)
    for least in (2.0, 0.5, 1.0):
        ReferenceOps().at_least(step_by_step, step_by_step.copy(), least)
    ReferenceOps().at_least(at_once, x_rows, 2.0)
    assert np.array_equal(step_by_step, at_once) and at_once.min() == 2.0


def test_the_line_of_the_header_says_the_fields_of_the_class(at_least: ModuleType) -> None:
    assert library.native_signature(at_least.AtLeast) == "at_least: value out; value x; number least;"
    line = "".join(f" F({kind}, {name})" for kind, name in (("value", "out"), ("value", "x"), ("number", "least")))
    assert f"OP(at_least,{line})" in PAGE


def with_at_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The native sources with the kernel of the page and its line in the header. Returns the kernel's file."""
    shutil.copytree(ROOT / "csrc", tmp_path / "csrc")
    header = tmp_path / "csrc" / "include" / "twostroke" / "ops.h"
    first_line = "#define TS_OPS(OP)"
    begin, middle, rest = header.read_text().partition(first_line)
    until, _, ops = rest.partition("\n")
    header.write_text(f"{begin}{middle}{until}\n{block('OP(at_least').rstrip()}\n{ops}")
    kernel = tmp_path / "csrc" / "generic" / "rows" / "at_least.cpp"
    kernel.write_text(block("csrc/generic/rows/at_least.cpp"))
    monkeypatch.setattr(build, "ROOT", tmp_path)
    monkeypatch.setattr(build, "HEADERS", tmp_path / "csrc" / "include")
    return kernel


def test_the_kernel_of_the_page_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = with_at_least(tmp_path, monkeypatch)
    assert kernel in build.sources(build.machine())
    machine = build.machine()
    flags = (*build.FLAGS, "-O0", "-target", build.TRIPLES[machine], *build.level_flags(machine, "generic"))
    (made,) = build.compile_all(build.shared_cache(), build.zig(), [(kernel, flags)])
    assert b"ts_at_least" in made.read_bytes()


@pytest.mark.daily
@pytest.mark.slow
def test_the_kernel_of_the_page_gives_the_bits_of_the_reference(
    at_least: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_at_least(tmp_path, monkeypatch)
    # The new line of the header changes every unit. They are compiled without optimization, which is quick.
    build.build_all(tmp_path / "lib", build.machine(), (*build.RELEASE, "-O0"), levels=["generic"])

    monkeypatch.setattr(library, "library_path", lambda level: tmp_path / "lib" / f"libtwostroke_{level}.so")
    library.load_library.cache_clear()
    library.op_numbers.cache_clear()
    try:
        assert isinstance(library.load_library("generic"), ctypes.CDLL)
        ops = CpuOps("generic", 2)
        for case in (made := cases_of(at_least.AtLeast)):
            assert near(case, results(ops.at_least, case), reference(case)), case.words
        assert len(made) == 24
        with pytest.raises(BackendError, match="at_least: x must be"):
            ops.at_least(np.empty((2, 3), np.float32), np.empty((2, 4), np.float32), 1.0)
        ops.close()
    finally:
        library.load_library.cache_clear()
        library.op_numbers.cache_clear()


def test_another_group_size_is_one_line(echo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = block("an entry of FORMATS").strip().rstrip(",")
    assert line == '"int8g64": WeightFormat(WeightKind.INT8, group=64)'
    monkeypatch.setitem(formats.FORMATS, "int8g64", WeightFormat(WeightKind.INT8, group=64))
    source = Path(formats.__file__ or "").read_text().replace('{"f32": F32,', f'{{"f32": F32, {line},')
    names: dict[str, Any] = {"__name__": formats.__name__}
    exec(source, names)  # noqa: S102
    assert "int8g64" in {*names["WEIGHT_NAMES"]} & {*names["WHOLE_NAMES"]}  # all other lists take these names
    model = read_folder(echo)
    sizes = {name: work_of(model, name, KVKind.BF16).weight_bytes for name in ("int8", "int8g64", "f32")}
    assert sizes["int8"] < sizes["int8g64"] < sizes["f32"]  # down has 136 columns, which are one group or three
    _, weights = load_folder(echo, formats.weight_format("int8g64"))
    cpu, token_ids, pages = CpuOps(None, 1), [5, 60, 0, 17], np.arange(2, dtype=np.int32)
    memory = memory_of(model, weights, KVKind.F32, MemorySizes(2, 32, 8, 8))
    found = cpu.compile(model.program, memory)(write_rows(memory, token_ids, 0, pages))
    expected = echo_by_hand(echo, token_ids)
    assert 0 < np.abs(found - expected).max() < 0.05 * np.ptp(expected)
    cpu.close()


def test_the_format_of_the_page_is_found_and_reads_its_examples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other file names it, and its place in the order follows from its name."""
    file = added(twostroke.text.talk.formats.objects, "echo_calls", tmp_path, monkeypatch)
    assert file in list(catalog.format_files()) and "echo_calls" not in catalog.FORMATS
    for example in file.EXAMPLES:
        assert valued(read(file.FORMAT, [example.raw], example.prompt)) == message_of(example)
    assert any(example.calls for example in file.EXAMPLES) and not set(catalog.SHARED) - set(catalog.FORMATS)
    sys.modules.pop("twostroke.text.talk.formats.objects.echo_calls")


def test_a_level_has_one_name_and_one_place_in_every_list() -> None:
    """The recipe for a level has the same names in every list, in the same order, and so do the words of
    --cpu-level."""
    level_h = (ROOT / "csrc" / "include" / "twostroke" / "level.h").read_text()
    words = options.BY_NAME["cpu_level"].help
    for architecture, levels in library.LEVELS_OF.items():
        assert tuple(build.LEVELS[architecture]) == levels
        for level in levels:
            assert options.BY_NAME["cpu_level"].read(level, "a test") == level and level in words
            assert f'"{level}"' in level_h and f"kLevel = levels::{level}();" in level_h
            assert level == "generic" or f"defined(TS_LEVEL_{level.upper()})" in level_h


def test_an_option_has_a_flag_a_variable_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    names: dict[str, Any] = {"Option": option.Option, "Group": option.Group, "parse_count": parse_count}
    exec("class Added(Group):\n    " + block("a field of StepSettings").strip(), names)  # noqa: S102
    added = dataclass(frozen=True, eq=False)(names["Added"])
    monkeypatch.setitem(options.BY_NAME, "echo_limit", added.echo_limit)
    assert added.echo_limit.flag == "--echo-limit" and list(added.options()) == [added.echo_limit]
    for given, environment, expected in (({}, {}, 4), ({}, {"echo_limit": "7"}, 7), ({"echo_limit": "9"}, {}, 9)):
        resolver = resolving.Resolver(resolving.collect(given, environment))
        assert resolver.pick(added.echo_limit, 4, "default") == expected
        (setting,) = resolver.resolved().settings
        assert added.of({setting.name: setting}).echo_limit == expected
        assert setting.reason == (
            "--echo-limit" if given else "the variable TWOSTROKE_ECHO_LIMIT" if environment else "default"
        )
