"""Every worked figure of DOMAIN.md, from the planner's own functions, and the round figures that it corrects."""

from __future__ import annotations

import pytest

from tests.planner.figures import LLAMA2_7B, LLAMA2_13B, LLAMA3_70B, spec_of
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import WorkCounter
from twostroke.lab.planner import ceilings
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.published import figures_for
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import weight_format
from twostroke.types.spec.formats import KVKind
from twostroke.types.spec.hardware_catalogue import CATALOGUE

BANDWIDTH = {entry.name: entry.read_bytes_per_s for entry in CATALOGUE}
SEVENTY_B_BYTES = 35e9


@pytest.mark.parametrize(
    ("hardware", "tokens_per_s"), [("rtx4090", 29), ("rtx3090", 27), ("a100-80gb", 58), ("m2-ultra", 23)]
)
def test_decode_ceiling_of_70b_at_4_bits(hardware: str, tokens_per_s: int) -> None:
    assert round(ceilings.decode_ceiling_tokens_per_s(BANDWIDTH[hardware], SEVENTY_B_BYTES)) == tokens_per_s


def test_bandwidth_that_30_tokens_a_second_take() -> None:
    assert ceilings.bandwidth_for_bytes_per_s(30, SEVENTY_B_BYTES) == 1050e9


def test_70b_is_35_gb_at_4_bits() -> None:
    assert spec_of(LLAMA3_70B).parameters() / 2 == pytest.approx(SEVENTY_B_BYTES, rel=0.01)


def test_kv_of_13b_is_0_82_mb_a_token_and_3_4_gb_at_4k() -> None:
    per_token = spec_of(LLAMA2_13B).kv_bytes_per_token(KVKind.BF16)
    assert per_token == 2 * 40 * 5120 * 2 == 819_200
    assert per_token * 4096 / 1e9 == pytest.approx(3.36, abs=0.005)


def test_kv_of_7b_is_1_07_gb_at_2048() -> None:
    assert spec_of(LLAMA2_7B).kv_bytes_per_token(KVKind.BF16) * 2048 / 1e9 == pytest.approx(1.07, abs=0.005)


def test_kv_of_70b_with_gqa_is_0_66_gb_a_sequence_and_70_gb_at_107() -> None:
    sequence = spec_of(LLAMA3_70B).kv_bytes_per_token(KVKind.BF16) * 2000
    assert sequence / 1e9 == pytest.approx(0.66, abs=0.005)
    assert 90 < ceilings.streams_for_bytes(60e9, sequence) < ceilings.streams_for_bytes(80e9, sequence) < 123


def test_ttft_is_prefill_and_the_rest_is_decode() -> None:
    assert ceilings.answer_s(2.0, 500, 20) == 27.0


def test_int8_and_int4_are_a_half_and_a_quarter_of_the_weights() -> None:
    spec = spec_of(LLAMA3_70B)
    sizes = {name: spec.weight_bytes(make_ask(spec, weights=name).format_for) for name in ("bf16", "int8", "int4")}
    assert sizes["int8"] / sizes["bf16"] == pytest.approx(1 / 2, rel=0.01)
    assert sizes["int4"] / sizes["bf16"] == pytest.approx(1 / 4, rel=0.08)  # the difference is scales and multipliers


def test_pages_waste_under_4_percent_where_blocks_waste_20_to_40_and_more() -> None:
    assert ceilings.page_waste_share(16, 200) < 0.04
    assert ceilings.page_waste_share(16, 2000) < 0.004
    assert [round(ceilings.reserved_waste_share(2048, mean), 1) for mean in (1638, 1229, 400)] == [0.2, 0.4, 0.8]


def test_speculation_gives_two_to_three_times_where_the_draft_is_often_right() -> None:
    assert 2 < ceilings.speculative_gain(0.7, 4, 0.05) < ceilings.speculative_gain(0.8, 4, 0.05) < 3
    assert ceilings.speculative_gain(0.1, 4, 0.05) < 1, "and costs time where it is seldom right"
    assert ceilings.speculative_gain(0.8, 4, 0.05, 2.0) < ceilings.speculative_gain(0.8, 4, 0.05)


def test_a_batch_reads_weights_once_and_kv_for_each() -> None:
    one = ceilings.decode_ceiling_tokens_per_s(1e12, 35e9, 1e9)
    assert ceilings.batch_ceiling_tokens_per_s(1e12, 35e9, 1e9, 1) == one
    assert ceilings.batch_ceiling_tokens_per_s(1e12, 35e9, 1e9, 8) == pytest.approx(8e12 / 43e9)


def test_prefill_floor_by_the_formula() -> None:
    """The counted work is 2 x parameters read x tokens, plus 4 x layers x heads x head_dim x n^2 / 2 for attention."""
    spec, tokens = spec_of(LLAMA2_7B), 2048
    read = spec.parameters() - 2 * spec.vocab_size * spec.hidden_size
    formula = 2 * read * tokens + 4 * 32 * 4096 * tokens**2 / 2
    counter = WorkCounter(work_of(spec, "bf16", KVKind.BF16))
    assert counter.step([Segment.prefill(0, tokens, True)]).total.flops == pytest.approx(formula, rel=0.005)
    assert ceilings.prefill_floor_s(formula, 312e12) == pytest.approx(0.0885, rel=0.01)


@pytest.mark.parametrize(
    ("config", "needles"),
    [
        (LLAMA2_13B, ["roughly 1 MB", "0.819 MB", "1.2 times", "4 GB", "3.36 GB"]),
        (LLAMA2_7B, ["2 GB", "1.07 GB", "1.9 times"]),
        (LLAMA3_70B, ["60 to 80 GB", "655 MB", "107 sequences"]),
    ],
)
def test_round_figures_that_differ_are_named(config: dict[str, object], needles: list[str]) -> None:
    said = " ".join(figures_for(spec_of(config), "bf16", 0))
    assert all(needle in said for needle in needles), said


def test_bits_a_weight_leave_out_the_scales() -> None:
    spec = spec_of(LLAMA3_70B)
    chosen = weight_format("int4")
    said = figures_for(spec, "int4", spec.weight_bytes(lambda weight: chosen))
    assert "35.28 GB" in said[0] and "38.04 GB" in said[0] and "+8%" in said[0]
    assert figures_for(spec_of({**LLAMA2_7B, "num_hidden_layers": 31}), "f32", 4 * spec.parameters()) is not None


def test_other_models_get_no_figures() -> None:
    spec = spec_of({**LLAMA2_7B, "num_hidden_layers": 31})
    assert figures_for(spec, "f32", 4 * spec.parameters()) == []
