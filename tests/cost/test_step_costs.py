"""Predicted steps: parts add up, more work never takes less time, and the figures are those of the arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.cost.machines import SPEC, calibration
from twostroke.cost.calibration import Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Bound, Segment, StepCost
from twostroke.cost.step_work import WorkCounter
from twostroke.cost.work_table import Products
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.errors import ConfigError
from twostroke.types.plan import Role
from twostroke.types.spec.formats import KVKind, WeightKind
from twostroke.types.spec.hardware import HardwareSpec
from twostroke.types.spec.hardware_catalogue import CATALOGUE

MODEL = read_model(SPEC)
MACHINES: dict[str, HardwareSpec | Calibration] = {"here": calibration(), "gpu": CATALOGUE[0], "cpu": CATALOGUE[-1]}
SEGMENTS = st.builds(
    Segment,
    st.integers(0, 3000),
    st.integers(1, 600),
    st.booleans(),
    st.sampled_from(Role),
    scored=st.just(0),
    drafts=st.just(0),
)


def cost_of(machine: HardwareSpec | Calibration, weights: str = "int8") -> StepCost:
    return step_cost(work_of(MODEL, weights, KVKind.BF16), machine)


@pytest.mark.parametrize("machine", MACHINES)
@given(segments=st.lists(SEGMENTS, max_size=6))
def test_parts_add_up_and_their_work_is_the_counters(machine: str, segments: list[Segment]) -> None:
    prediction = cost_of(MACHINES[machine]).predict(segments)
    assert prediction.seconds == pytest.approx(sum(part.seconds for part in prediction.parts))
    assert all(part.seconds >= 0 for part in prediction.parts)
    assert prediction.work == WorkCounter(work_of(MODEL, "int8", KVKind.BF16)).step(segments).total
    names = [part.name for part in prediction.parts]
    assert names == (["weights", "head", "attention", "other", "host"] if segments else ["host"])


MORE: dict[str, Callable[[Segment], Segment]] = {
    "more context": lambda s: Segment.prefill(s.start + 500, s.num_tokens, s.samples),
    "logits as well": lambda s: Segment.prefill(s.start, s.num_tokens, True),
    "twice the rows": lambda s: Segment.prefill(s.start, 2 * s.num_tokens, s.samples),
}


@pytest.mark.parametrize("more", MORE)
@pytest.mark.parametrize("machine", MACHINES)
@given(segments=st.lists(SEGMENTS, min_size=1, max_size=5))
def test_more_work_never_takes_less_time(machine: str, more: str, segments: list[Segment]) -> None:
    cost = cost_of(MACHINES[machine])
    assert cost.predict([MORE[more](s) for s in segments]).seconds >= cost.predict(segments).seconds * (1 - 1e-9)


@pytest.mark.parametrize("machine", MACHINES)
@given(segments=st.lists(SEGMENTS, min_size=1, max_size=5), added=SEGMENTS)
def test_one_more_sequence_never_takes_less_time(machine: str, segments: list[Segment], added: Segment) -> None:
    cost = cost_of(MACHINES[machine])
    assert cost.predict([*segments, added]).seconds >= cost.predict(segments).seconds * (1 - 1e-9)


def test_a_decode_step_of_this_machine_by_hand() -> None:
    parts = {part.name: part for part in cost_of(calibration(cold_bytes=4.1e6)).predict([Segment.decode(99)]).parts}
    shapes = [(256 + 256, 256), (256, 256), (1024, 256), (256, 512)]
    weights, features = 4 * sum(r * c for r, c in shapes), 4 * sum(r + c for r, c in shapes)
    # 2.6 MB of weights stay in caches (warm), at 16 ps for each weight.
    assert parts["weights"].seconds == pytest.approx(16e-12 * weights + 1e-10 * features)
    assert parts["head"].seconds == pytest.approx(16e-12 * 1024 * 256 + 1e-10 * (1024 + 256))
    read = 4 * 100 * 2 * 2 * 64 * 2
    flops = 4 * 100 * 4 * 4 * 64
    assert parts["attention"].seconds == pytest.approx(read * 20e-12 + flops * 1e-12 + 4 * 2 * 1e-7)
    assert parts["host"].seconds == pytest.approx(1e-4 + 2e-5 + 1e-10 * 1024)
    assert parts["host"].bound is Bound.HOST


def test_a_chunk_of_this_machine_by_hand() -> None:
    parts = {part.name: part for part in cost_of(calibration()).predict([Segment.prefill(100, 64, False)]).parts}
    pairs = 4 * sum(range(101, 165))
    expected = pairs * 4 * 4 * 64 * 2e-12 + 4 * 64 * 4 * 1e-8
    assert parts["attention"].seconds == pytest.approx(expected)
    assert parts["head"].seconds == 0
    assert parts["weights"].bound is Bound.ARITHMETIC and parts["attention"].bound is Bound.ARITHMETIC


def test_weights_that_leave_the_caches_cost_more() -> None:
    segments = [Segment.decode(10)]
    warm, between, cold = (
        cost_of(calibration(warm_bytes=low, cold_bytes=high)).predict(segments).seconds
        for low, high in ((100e6, 200e6), (1e6, 5e6), (1e3, 2e3))
    )
    assert warm < between < cold


def test_a_roofline_step_is_bound_by_the_slower_of_both() -> None:
    gpu = CATALOGUE[0]
    parts = {part.name: part for part in cost_of(gpu).predict([Segment.decode(0)]).parts}
    weights = parts["weights"]
    assert weights.bound is Bound.MEMORY
    assert weights.seconds == pytest.approx(weights.work.total_bytes / (936e9 * gpu.efficiency.memory))
    bound = {part.name: part.bound for part in cost_of(CATALOGUE[-1]).predict([Segment.prefill(0, 4000, True)]).parts}
    assert bound["weights"] is Bound.MEMORY or bound["attention"] is Bound.ARITHMETIC


@pytest.mark.parametrize("changes", [{"linear": {}}, {"attention": {}}])
def test_a_format_that_was_not_measured_is_named(changes: dict[str, dict[str, str]]) -> None:
    with pytest.raises(ConfigError, match=r"not measured with (weights|a KV cache) in (int8|bf16)"):
        cost_of(calibration(**changes))


def test_products_of_several_kinds_each_have_their_own_rate() -> None:
    """A roofline step of many rows takes as long as the products of each kind alone, however large they are."""
    table = work_of(MODEL, "int8", KVKind.BF16)
    (whole,) = table.layer_products
    half = structs.replace(whole, elements=whole.elements // 2)
    floats = structs.replace(half, kind=WeightKind.F32, elements=whole.elements - half.elements)
    rows, cpu = [Segment.prefill(0, 4096, False)], CATALOGUE[-1]

    def weights_s(*products: Products) -> float:
        made = step_cost(structs.replace(table, layer_products=products), cpu).predict(rows)
        return next(part.seconds for part in made.parts if part.name == "weights")

    quick, slow = weights_s(whole), weights_s(structs.replace(whole, kind=WeightKind.F32))
    assert quick < slow and weights_s(half, floats) == pytest.approx((quick + slow) / 2, rel=1e-4)
