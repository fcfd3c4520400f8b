"""Every kernel compiles for the named chips with the intended instructions, and the assembler reports no spills."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cuda.assembled import AT_COMMITS, CHIPS, assembled, assembled_now
from tests.tiers import TIER, rest_daily, thinned
from twostroke.backends.cuda import build

KERNELS = re.findall(r"K\((\w+), \w+\)", (build.HEADERS[0] / "twostroke/cuda/arguments.h").read_text())
KERNELS_OF_A_COMMIT = 12
"""The number of kernels that are assembled again to check the kept figures."""
MOST_REGISTERS = 168
"""With these, three blocks of 128 threads fit on a multiprocessor at once. Attention has the most."""
TWO_BLOCKS = {
    "latent_attention": 176, "attention_prompt_int8": 255, "attention_prompt_int4": 255, "linear_steps": 255,
}  # fmt: skip
"""The most registers of kernels that run as two blocks on a multiprocessor.
Kernels of prompts keep 16 rows' sums over a segment in registers."""
ONE_BLOCK = [name for name in KERNELS if name.startswith("linear_prompt")]
"""Kernels with one block on a multiprocessor, whose warps move registers between them. MOST_REGISTERS is what each
warp has at first."""
STEPS_SPILLED = dict.fromkeys(("linear_steps_" + kind for kind in ("flat4", "flat8", "super4_min", "super6")), 256)
"""The most bytes of stack and of spills. Two blocks fit, and codes are loaded far ahead, which saves more than a few
spills cost."""
WORDS_SPILLED = {"linear_row_int4": 16, "linear_stored_super4_min": 8}
"""Two kernels keep one to four words more than there are registers on chips of compute capability 8."""
SPILLED_BYTES = {chip: STEPS_SPILLED for chip in CHIPS} | {
    **{chip: {**STEPS_SPILLED, **WORDS_SPILLED} for chip in ("sm_80", "sm_86", "sm_89")},
    # One word, once in six products.
    "sm_90a": {**STEPS_SPILLED, "linear_prompt_int8_2x3": 16},
    # The last group of a super kind may be short. Its steps are then multiplied by zero, which takes two words more.
    "sm_103": {**STEPS_SPILLED, "linear_steps_super6": 264, "linear_wide_flat8": 12},
    # Each of the twelve paths of linear_few takes 113 to 128 registers alone and spills nothing. Together they share
    # values, of which 20 words are stored once and loaded once in the code. For attention it is four words.
    "sm_120": {**STEPS_SPILLED, "linear_few": 80, "attention_prompt_int4": 16},
}


def bodies(chip: str) -> dict[str, str]:
    """The text of each kernel."""
    text = build.compile_ptx(chip).read_text()
    parts = re.split(r"^\.visible \.entry ts_kernel_(\w+)\(", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("chip", rest_daily(build.CHIPS, [AT_COMMITS]))
def test_every_kernel_is_there_and_rounds_as_the_cpu_does(chip: str) -> None:
    found = bodies(chip)
    assert sorted(found) == sorted(set(KERNELS)) and len(KERNELS) >= 19
    text = "".join(found.values())
    for loose in ("approx", ".ftz", "ex2", "lg2", "local_depot", "fma.rn.f64"):
        assert loose not in text, loose
    for name in ("linear_float", "attention_bf16", "rms_norm", "gate"):
        assert "fma.rn.f32" in found[name]
    assert "sqrt.rn.f32" in found["rms_norm"] and "div.rn.f32" in found["gate"]
    assert "mul.rn.f64" in found["sample_weigh"] and "add.rn.f64" in found["sample_weigh"]
    for name in ("linear_one", "linear_stored"):
        assert "dp4a.u32.s32" in found[name]
    for name in ("attention_scores_int8", "attention_scores_int4"):
        assert "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32" in found[name]
    assert "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32" in found["attention_int8"]
    for name in (name for name in found if re.match("linear_(tile|narrow|bank|steps)", name)):
        loads = "ld.global.nc.v4" if "steps" in name else "cp.async.cg"
        assert "mma.sync.aligned.m16n8k32" in found[name] and loads in found[name]
        assert found[name].count(".maxntid") == 1
    for name in ONE_BLOCK:
        kinds = ("wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8", "cp.async.bulk.shared", "setmaxnreg.inc")
        assert all((kind in found[name]) == (chip == "sm_90a") for kind in kinds), name
    for name in (name for name in found if re.match("linear_(few|rows?_int)", name)):
        assert "mma.sync.aligned.m16n8k32" in found[name] and "ld.global.nc" in found[name]
    for name in ("linear_one", "linear_few", "linear_row_int8", "linear_rows_int4", "linear_stored"):
        assert found[name].count(".maxntid") == 1
    assert not re.search(r"\bcall\b", text)  # a compiler could move a barrier in a function that is not inlined
    for name in ("linear_one", "linear_stored", "attention_int8", "attention_f32", "layer_norm"):
        assert found[name].count("bar.sync") >= 2
    # These are not fused on purpose: rope multiplies and then adds.
    assert "fma.rn" not in found["rope"]


SOURCES = "".join(path.read_text() for path in build.SOURCES.rglob("kernels/**/*.cpp"))
MACROS = re.findall(r"#define (TS_\w+)\(name,[^\n]*\n *TS_KERNEL_AHEAD\(name,", SOURCES)
AHEAD = re.findall(rf"\b(?:{'|'.join(['TS_KERNEL_AHEAD', *MACROS])})\((\w+),", SOURCES)
"""The kernels that load weights before the kernels before them have ended."""


def test_kernels_that_may_begin_early_wait_first() -> None:
    """Every kernel must wait, because each waits only for the one before. Otherwise a grid could read before an earlier
    one has written. A kernel of AHEAD writes no global memory before it waits."""
    for name, text in bodies("sm_90a").items():
        before, _, behind = text.partition("griddepcontrol.wait;")
        assert behind and before.count("griddepcontrol.launch_dependents;") == 1, name
        if name in AHEAD:
            assert re.findall(r"\b(?:st\.global|atom|red\.global)\b.*", before) == [], name
            continue
        touched = re.findall(r"\b(?:ld\.global|ld\.shared|st|atom|red|cp|bar|shfl|mma|bra|call)\b.*", before)
        assert touched == [], name


@pytest.mark.daily
def test_kernels_for_every_chip_cannot_wait() -> None:
    assert not any("griddepcontrol" in text for text in bodies("sm_80").values())


@pytest.fixture
def ptxas() -> Path:
    """The assembler."""
    found = build.assembler()
    if found is None:
        pytest.skip("not assembled: pip install nvidia-cuda-nvcc==13.0.88 (of the test extra) brings ptxas")
    return found


@pytest.mark.parametrize("chip", rest_daily(CHIPS, [AT_COMMITS]))
def test_the_assembler_finds_no_spills_but_those_that_are_named(chip: str, ptxas: Path) -> None:
    """It compiles the PTX that is shipped for a chip, as the chip's driver would."""
    found, code_bytes = assembled(ptxas, chip)
    assert sorted(found) == sorted(set(KERNELS))
    most = {name: TWO_BLOCKS.get(name, MOST_REGISTERS) for name in found}
    wrong = {
        name: each
        for name, each in found.items()
        if max(each[1:]) > SPILLED_BYTES[chip].get(name, 0) or not 0 < each[0] <= most[name]
    }
    assert wrong == {}, f"{chip}: registers, stack, spills"
    assert code_bytes < 5 << 20


@pytest.mark.parametrize("chip", thinned(list(CHIPS), "assembled", 1) if TIER.daily else [AT_COMMITS])
def test_the_kept_figures_are_those_of_the_assembler(chip: str, ptxas: Path) -> None:
    """The seed of a daily run chooses one chip, whose kernels are all assembled. This takes most of a minute, so other
    runs assemble only some."""
    kept = assembled(ptxas, chip)
    if TIER.daily:
        assert kept == assembled_now(ptxas, chip)
        return
    names = thinned(sorted(kept.kernels), "assembled", KERNELS_OF_A_COMMIT)
    assert assembled_now(ptxas, chip, names).kernels == {name: kept.kernels[name] for name in names}
