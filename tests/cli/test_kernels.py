"""`twostroke kernels`: the table comes from the code that chooses kernels, and names functions that exist."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.tiers import levels
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.kernel_table import MOST_ROWS, KernelRow, kernel_table
from twostroke.backends.cpu.ops import Reading
from twostroke.cli.main import main
from twostroke.ops.registry import registry
from twostroke.types.spec.formats import KVKind, WeightKind

CSRC = Path(__file__).resolve().parents[2] / "csrc"
PRODUCTS = ("linear", "linear_add", "linear_silu", "feed_forward", "experts")
WORD = re.compile(r"[a-z_0-9]+")


def table(level: str, reading: Reading = Reading.ONE_STRETCH) -> list[KernelRow]:
    ops = CpuOps(level, 1)
    ops.read_weights(reading)
    rows = kernel_table(ops)
    ops.close()
    return rows


@pytest.mark.parametrize("level", levels())
def test_every_op_format_and_number_of_rows_has_one_kernel(level: str) -> None:
    found = table(level)
    assert {row.op for row in found} == set(registry())
    for name in {(row.op, row.format, row.heads) for row in found}:
        rows = [row for row in found if (row.op, row.format, row.heads) == name]
        assert rows[0].first_row == 1 and rows[-1].last_row is None
        for before, after in pairwise(rows):
            assert before.last_row == after.first_row - 1 and before.kernel != after.kernel
    for name in PRODUCTS:
        assert {row.format for row in found if row.op == name} == {kind.name.lower() for kind in WeightKind}
        assert all(row.kernel for row in found if row.op == name)


@pytest.mark.parametrize("level", levels())
def test_the_names_are_those_of_functions(level: str) -> None:
    sources = "".join(path.read_text() for path in [*CSRC.rglob("*.cpp"), *CSRC.rglob("*.h")])
    for kernel in {row.kernel for row in table(level)} - {""}:
        words = [word for word in WORD.findall(kernel) if "_" in word]
        assert words and all(re.search(rf"\b{word}\(", sources) for word in words), kernel


@pytest.mark.parametrize(
    ("kernel", "way"),
    [
        ("stream_kernel", "read_streams"),
        ("few_rows_kernel", "read_on"),
        ("several_rows_kernel", "read_several_on"),
        ("block_group", "blocks_by_group"),
        ("int4_kernel", "int4_by_group"),
        ("unpack_int4", "unpacked_by_group"),
        ("int4_codes_kernel", "codes_by_group"),
    ],
)
def test_a_kernel_is_taken_in_one_place_alone(kernel: str, way: str) -> None:
    """The function of a way is called in one place, and the table of ts_kernel names this way. So no other code can
    choose it."""
    places = []
    for path in (CSRC / "generic" / "linear").glob("linear*.cpp"):
        for function in re.split(r"\n(?=[a-zA-Z].*\) \{\n)", path.read_text()):
            head = function.lstrip().partition("\n")[0]
            if re.search(rf"\b{kernel}\(", function.partition("\n")[2]):
                places.append(head)
    assert len(places) == 1 and f" {way}(" in places[0], places


@pytest.mark.parametrize("level", levels())
def test_the_table_follows_the_way_to_read_that_the_backend_is_set_to(level: str) -> None:
    ops = CpuOps(level, 1)
    names = {}
    for reading in (Reading.ONE_STRETCH, Reading.IN_TURN):
        ops.read_weights(reading)
        names[reading] = [ops.kernel("linear", WeightKind.INT8, KVKind.F32, n, 64) for n in range(1, MOST_ROWS + 1)]
    ops.close()
    assert (names[Reading.ONE_STRETCH] != names[Reading.IN_TURN]) == (level in ("avx512", "amx"))


def test_text_and_json_say_the_same() -> None:
    text = CliRunner().invoke(main, ["kernels", "--level", "generic"])
    found = json.loads(CliRunner().invoke(main, ["kernels", "--level", "generic", "--json"]).stdout)
    assert text.exit_code == 0 and found["level"] == "generic"
    lines = text.stdout.splitlines()
    assert lines[0] == "kernels of level generic" and len(lines) == 2 + len(found["kernels"])
    assert re.search(r"^linear +int4 +any +unpack_int4, then int8_kernel$", text.stdout, re.MULTILINE)
    assert re.search(r"^rms_norm +any +rms_norm: one form$", text.stdout, re.MULTILINE)


def test_a_model_names_the_ops_of_its_program() -> None:
    result = CliRunner().invoke(main, ["kernels", "spark"])
    ops = {line.split()[0] for line in result.stdout.splitlines()[2:]}
    assert result.exit_code == 0 and "feed_forward" in ops and "experts" not in ops and "ops of spark" in result.stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--level", "sse9"], 5, "no kernels of level sse9"),
        (["/nowhere/at/all"], 3, "/nowhere/at/all"),
    ],
)
def test_bad_input_is_one_error(words: list[str], code: int, said: str) -> None:
    result = CliRunner().invoke(main, ["kernels", *words])
    assert result.exit_code == code and said in result.stderr and result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_device_says_its_kernels_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cuda.emulator.fake import built_folder
    from twostroke.backends.cuda import library

    monkeypatch.setattr(library, "LIBRARY_FOLDER", built_folder())
    result = CliRunner().invoke(main, ["kernels", "--level", "cuda", "--json"])
    found = {(row["op"], row["format"]): row["kernel"] for row in json.loads(result.output)["kernels"]}
    assert {op for op, _ in found} == set(registry())
    assert found["linear", "int8"] == "linear_tile_int8" and found["experts", "int8"] == "linear_one"
    assert found["linear", "flat4"] == "linear_wide_flat4" and found["experts", "flat4"] == "linear_stored_flat4"
    assert found["attention", "bf16"] == "attention_bf16"
    table = (CSRC / "cuda" / "include" / "twostroke" / "cuda" / "arguments.h").read_text()
    assert all(f"K({kernel}, " in table for kernel in found.values() if kernel)
