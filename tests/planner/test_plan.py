"""A whole plan: memory, phases, load, prices, candidates, objectives that no machine can meet."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cost.machines import SPEC, calibration
from tests.planner.figures import LLAMA2_7B, LLAMA3_70B, spec_of
from twostroke.lab.planner.adapted import with_places
from twostroke.lab.planner.ask import Ask, make_ask
from twostroke.lab.planner.choose import candidates, seconds
from twostroke.lab.planner.expect import Expectation, expect
from twostroke.lab.planner.plan import SCHEMA, ModelPlan, make_plan, plan_json
from twostroke.lab.planner.plan_text import plan_text
from twostroke.lab.planner.savings import needed_read_words, savings
from twostroke.lab.planner.target import Target, catalogue_target, here_target, named_target
from twostroke.ops.products.linear import Linear
from twostroke.types.errors import ConfigError
from twostroke.types.spec.hardware import find_hardware
from twostroke.types.spec.hardware_catalogue import CATALOGUE

SEVENTY, SEVEN, SMALL = spec_of(LLAMA3_70B), spec_of(LLAMA2_7B), spec_of(SPEC)


def wanted(spec: Any, **asked: Any) -> Ask:
    """The arguments, with the objectives and the price that `make_ask` leaves open."""
    later = {name: asked.pop(name) for name in ("ttft_s", "itl_s", "price_per_hour") if name in asked}
    return replace(make_ask(spec, **asked), **later)


def expected(hardware: str | Target, spec: Any = SEVENTY, **asked: Any) -> Expectation:
    target = named_target(hardware) if isinstance(hardware, str) else hardware
    return expect(spec, wanted(spec, **asked), target)


def planned(hardware: str | Target, spec: Any = SEVENTY, **asked: Any) -> ModelPlan:
    target = named_target(hardware) if isinstance(hardware, str) else hardware
    return make_plan("somebody/model", spec, wanted(spec, **asked), target)


def test_memory_is_the_formulas() -> None:
    room = expected("h100-sxm", weights="int4", context=2000).room
    assert room.kv_bytes_per_token == 80 * 8 * (2 * 128 + 4)  # int8, with two scales for each head
    assert room.kv_bytes_per_sequence == 2000 * room.kv_bytes_per_token
    left = 0.9 * 80e9 - room.weight_bytes - room.buffer_bytes
    assert room.sequences == left // room.kv_bytes_per_sequence > 40


def test_places_for_adapters_take_memory_and_time() -> None:
    """As in serve's banks, int8 is next to int4, and a step reads the slots that its rows use."""
    count, rank = 8, 16
    adapted = with_places(SEVENTY, count, rank)
    ask = replace(make_ask(SEVENTY, weights="int4", concurrency=4), adapters=count)
    target = named_target("h100-sxm")
    plain, found = make_plan("m", SEVENTY, ask, target), make_plan("m", adapted, ask, target)
    linears = [call.weight for call in SEVENTY.plain.body if isinstance(call, Linear)]
    numbers = sum(rank * (weight.columns * len(weight.parts) + weight.rows) for weight in linears)
    room = found.expectation.room
    assert room.adapter_bytes == pytest.approx(count * numbers, rel=0.01)
    without = plain.expectation.room
    assert room.parameters == without.parameters and room.weight_bytes == pytest.approx(without.weight_bytes, rel=1e-6)
    assert room.active_parameters == room.parameters and room.sequences < without.sequences
    one, before = found.expectation.decode_one, plain.expectation.decode_one
    assert one.work.weight_bytes - before.work.weight_bytes == pytest.approx(numbers, rel=0.01)
    assert one.seconds > before.seconds
    several = found.expectation.decode.work.weight_bytes - plain.expectation.decode.work.weight_bytes
    assert several == pytest.approx(numbers * round(count * (1 - (1 - 1 / count) ** 4)), rel=0.01)
    assert "8 adapters" in plan_text(found) and "adapter of rank 16" in plan_text(found)
    assert with_places(SEVENTY, 0, rank) is SEVENTY


def test_what_does_not_fit_is_said_and_has_no_load() -> None:
    plan = planned("rtx4090", weights="bf16")
    assert plan.expectation.room.sequences == 0 and plan.expectation.load is None and plan.lacks == ("memory",)
    assert "DOES NOT FIT" in plan_text(plan)


def test_decode_is_below_the_ridge_and_prefill_above() -> None:
    found = expected("h100-sxm", weights="bf16", context=4096)
    assert found.decode_one.side == "memory" and found.prefill.side == "arithmetic"
    assert found.prefill.ridge_flops_per_byte == pytest.approx(989e12 / 3.35e12)
    assert found.decode_one.rate_tokens_per_s < found.decode_one.ceiling_tokens_per_s
    assert found.decode_one.ceiling_tokens_per_s == pytest.approx(
        3.35e12 / (found.decode_one.work.weight_bytes + found.decode_one.work.kv_bytes)
    )


def test_many_streams_pass_the_ridge() -> None:
    few, many = (expected("h100-sxm", SEVEN, weights="bf16", context=64, concurrency=n).decode for n in (1, 900))
    assert few.side == "memory" and many.side == "arithmetic"


@given(st.integers(1, 64), st.integers(2, 2048), st.integers(1, 512))
def test_the_closed_loop_keeps_littles_law(streams: int, context: int, output: int) -> None:
    if output >= context:
        return
    found = expected(
        here_target(calibration(), 16 * 10**9), SMALL, context=context, output_tokens=output, concurrency=streams
    )
    load = found.load
    assert load is not None and load.streams == streams
    lasting = load.ttft_s + max(1, output - 1) * load.mean_itl_s
    assert load.requests_per_s * lasting == pytest.approx(streams, rel=1e-6)
    assert load.ttft_s > 0 and load.itl_s > 0
    assert load.longest_gap_s >= load.itl_s * (1 - 1e-9) and load.longest_gap_s >= load.mean_itl_s * (1 - 1e-9)
    assert 0 <= load.prefill_gap_share <= 1


def test_more_streams_wait_longer_and_earn_more() -> None:
    loads = [expected("h100-sxm", weights="int4", concurrency=n).load for n in (1, 4, 16)]
    assert [x.mean_itl_s for x in loads if x] == sorted(x.mean_itl_s for x in loads if x)
    assert [x.output_tokens_per_s for x in loads if x] == sorted(x.output_tokens_per_s for x in loads if x)


def test_prices_differ_and_why_is_said() -> None:
    plan = planned("h100-sxm", weights="int4", concurrency=4, price_per_hour=3.6)
    found = plan.expectation
    prices = found.prices
    assert prices is not None
    assert prices.output_per_million == pytest.approx(1e-3 * 1e6 * found.decode.seconds / 4)
    assert prices.input_per_million == pytest.approx(1e-3 * 1e6 * found.ttft_alone_s / 1536)
    assert prices.ratio > 5
    text = plan_text(plan)
    assert "a million input tokens" in text and "a million output tokens" in text
    assert "a step reads the weights" in text and "for 4 tokens when it decodes and for 1,536" in text


def test_no_price_no_prices() -> None:
    assert expected("h100-sxm", weights="int4").prices is None


def test_candidates_are_the_smallest_that_do() -> None:
    found = {each.hardware.name: each for each in candidates(SEVENTY, make_ask(SEVENTY, weights="bf16"))}
    titles = {name: each.expectation.target.title for name, each in found.items()}
    assert titles["h100-sxm"] == "2 x NVIDIA H100 SXM" and titles["mi300x"] == "AMD Instinct MI300X"
    assert titles["l4"] == "8 x NVIDIA L4" and found["l4"].does and not found["m4-max"].does
    assert "m4-ultra" not in found


def test_objectives_are_judged() -> None:
    met = planned("h100-sxm", weights="int4", ttft_s=1.0, itl_s=0.05)
    assert met.lacks == () and "--ttft 1 s: met" in plan_text(met)
    missed = planned("epyc-9654", weights="int4", ttft_s=1.0, itl_s=0.05)
    assert missed.lacks == ("ttft", "itl") and "--itl 50 ms: MISSED" in plan_text(missed)
    assert any(each.does for each in missed.candidates)


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"ttft_s": 1e-6}, "--ttft"),
        ({"itl_s": 1e-6}, "--itl"),
        ({"concurrency": 10**6}, "--concurrency"),
    ],
)
def test_what_no_machine_can_do_is_an_error_that_names_the_objective(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError) as caught:
        planned("h100-sxm", weights="int4", **asked)
    assert named in caught.value.what and caught.value.why and caught.value.fix


def test_objectives_that_cannot_be_met_together_are_named_together() -> None:
    gpu = find_hardware("h200", CATALOGUE)
    reader = replace(gpu, name="reader", int8_ops_per_s=gpu.int8_ops_per_s / 100)
    counter = replace(gpu, name="counter", read_bytes_per_s=gpu.read_bytes_per_s / 60)
    ask = wanted(SEVENTY, weights="int4", concurrency=2, ttft_s=0.5, itl_s=0.06)
    with pytest.raises(ConfigError, match="cannot be met together") as caught:
        make_plan("m", SEVENTY, ask, catalogue_target(reader), (reader, counter))
    assert "reader misses ttft" in caught.value.why and "counter misses ttft, itl" in caught.value.why


def test_the_objective_says_which_bandwidth_it_takes() -> None:
    ask = wanted(SEVENTY, weights="int4", context=16, itl_s=1 / 30)
    words = needed_read_words(SEVENTY, ask)
    assert words is not None and "1,14" in words and "38" in words  # 38.04 GB stored, 30 times a second
    assert needed_read_words(SEVENTY, replace(ask, itl_s=None)) is None


def test_savings_say_by_how_much() -> None:
    found = {each.name: each for each in savings(SEVENTY, make_ask(SEVENTY, weights="bf16"), named_target("h200"))}
    assert list(found) == ["weights int8", "weights int4", "kv int8", "speculation", "pages", "kv-disk"]
    assert 1.7 < found["weights int8"].gain < 2 and 2.7 < found["weights int4"].gain < 4
    assert 1 < found["kv int8"].gain < 1.1 and 2 < found["speculation"].gain < 3
    assert "0.4% of the K and V memory unused" in found["pages"].words and "12%" in found["pages"].words
    assert "are read from a disk in" in found["kv-disk"].words and "at 200 MB/s" in found["kv-disk"].words


def test_savings_leave_out_what_was_not_measured() -> None:
    measured = calibration()
    only = {kind: rates for kind, rates in measured.linear.items() if kind.name == "INT8"}
    target = here_target(replace(measured, linear=only), 10**10)
    names = [each.name for each in savings(SMALL, make_ask(SMALL, kv_format="bf16"), target)]
    assert names == ["kv int8", "speculation", "pages", "kv-disk"]


def test_json_has_a_stable_schema() -> None:
    plan = planned("2xh100-sxm", weights="int8", concurrency=2, price_per_hour=4, ttft_s=2, itl_s=0.1)
    made = plan_json(plan)
    assert json.loads(json.dumps(made)) == made and made["schema"] == SCHEMA == 2
    assert set(made) == {
        *("schema", "model", "architecture", "ask", "hardware", "memory", "prefill", "decode_one", "decode"),
        *("ttft_alone_s", "load", "prices", "misses", "catalogue", "savings", "round_figures", "assumptions"),
        "images",
    }
    assert set(made["load"]) == {
        *("streams", "ttft_s", "itl_s", "mean_itl_s", "longest_gap_s", "prefill_gap_share", "requests_per_s"),
        *("input_tokens_per_s", "output_tokens_per_s"),
    }
    assert set(made["prices"]) == {"input_per_million", "output_per_million", "mixed_per_million", "ratio"}
    assert {"side", "ridge_flops_per_byte", "intensity_flops_per_byte"} <= set(made["decode"])
    assert {"parameters", "weight_bytes", "kv_bytes_per_token", "kv_bytes_per_sequence", "fits"} <= set(made["memory"])
    assert {"name", "does", "misses", "ttft_s", "itl_s", "source"} <= set(made["catalogue"][0])
    assert made["hardware"]["name"] == "h100-sxm" and made["memory"]["fits"] is True


def test_assumptions_are_stated() -> None:
    plan = planned("h100-sxm", weights="int4", price_per_hour=2)
    said = " ".join(plan.assumptions)
    for needle in ("closed loop", "4.31 bits", "pages of 16", "10% of the memory", "datasheet", "65%", "hourly price"):
        assert needle in said, needle
    assert all(assumption in plan_text(plan) for assumption in plan.assumptions)


def test_a_disturbed_measurement_is_an_assumption() -> None:
    quiet, loud = (here_target(calibration(others_share=share), 10**10).assumptions for share in (0.0, 0.4))
    assert len(quiet) == 1 and "40% of the cores" in loud[1]


@pytest.mark.parametrize(
    ("asked", "named"),
    [
        ({"context": 10**6}, "--context"),
        ({"context": 1}, "--context"),
        ({"context": 100, "output_tokens": 100}, "--output"),
    ],
)
def test_lengths_that_cannot_be_are_named(asked: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        make_ask(SEVENTY, **asked)


def test_devices_are_asked_for_by_number() -> None:
    assert named_target("4xh100-sxm").title == "4 x NVIDIA H100 SXM"
    with pytest.raises(ConfigError, match="1 to 8"):
        named_target("64xh100-sxm")


@pytest.mark.parametrize(
    ("value", "words"), [(12.345, "12.3 s"), (0.05, "50 ms"), (4e-5, "40 us"), (1234.0, "1,234 s")]
)
def test_seconds_in_the_unit_that_fits(value: float, words: str) -> None:
    assert seconds(value) == words


def test_a_windows_memory_is_bounded_and_said() -> None:
    """The memory is 256 positions, a chunk of 2,048 and a page."""
    mistral = {"architectures": ["MistralForCausalLM"], "model_type": "mistral", "sliding_window": 256}
    windowed = spec_of({**LLAMA2_7B, **mistral})
    short, long = (expected("h100-sxm", windowed, context=context).room for context in (3000, 4096))
    assert long.window_bytes_per_sequence == short.window_bytes_per_sequence == long.kv_bytes_per_sequence > 0
    assert (long.kv_bytes_per_token, long.sequences) == (0, short.sequences) and long.sequences > 40
    text = plan_text(planned("h100-sxm", windowed, context=4096))
    assert "K and V in windows" in text and "K and V a token" not in text
