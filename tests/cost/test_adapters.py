"""What adapters add to a step, by the number of different adapters in its rows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.sim.machines import CONFIG
from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.cost.step_work import WorkCounter
from twostroke.lab.planner.adapted import with_places
from twostroke.lab.planner.target import named_target
from twostroke.lab.sim.fleet.fleet import Fleet, FleetPlan
from twostroke.lab.sim.fleet.routers import named_router
from twostroke.lab.sim.prompts import heart_request
from twostroke.lab.sim.setup import Sizes, replica_setup
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.models.common.registry import read_model
from twostroke.models.common.work import work_of
from twostroke.types.spec.formats import KVKind

MODEL = read_model(CONFIG)
ADAPTED = with_places(MODEL, 8, 16)
H100 = named_target("h100-sxm")


def counter() -> WorkCounter:
    return WorkCounter(work_of(ADAPTED, "int8", KVKind.BF16))


def decoding(*adapters: int) -> list[Segment]:
    return [Segment.decode(500, adapter) for adapter in adapters]


def test_each_adapter_is_read_once_and_each_row_with_one_computed() -> None:
    plain = WorkCounter(work_of(MODEL, "int8", KVKind.BF16))
    of = counter().step
    without, bare = of(decoding(-1, -1, -1, -1)).weights, plain.step(decoding(-1, -1, -1, -1)).weights
    assert without.weight_bytes == bare.weight_bytes  # slots that no row uses cost nothing
    assert without.flops == pytest.approx(bare.flops, rel=0.01)  # a call that is not fused is counted elsewhere
    one, same, two = (of(decoding(*each)).weights for each in ((3, -1, -1, -1), (3, 3, -1, -1), (3, 5, -1, -1)))
    banks = work_of(ADAPTED, "int8", KVKind.BF16).adapters
    assert banks is not None
    assert one.weight_bytes - without.weight_bytes == banks.adapter_bytes > 0
    assert same.weight_bytes == one.weight_bytes and two.weight_bytes - one.weight_bytes == banks.adapter_bytes
    assert same.flops - one.flops == one.flops - without.flops == banks.row.flops > 0
    chunk = of([Segment.prefill(0, 100, True, 3)]).weights
    other = of([Segment.prefill(0, 100, True)]).weights
    assert chunk.weight_bytes - other.weight_bytes == banks.adapter_bytes
    assert chunk.flops - other.flops == 100 * banks.row.flops


def test_predictions_grow_with_the_number_of_adapters() -> None:
    cost = step_cost(work_of(ADAPTED, "int8", KVKind.BF16), H100.machine)
    streams = ((-1,) * 4, (1,) * 4, (1, 1, 2, 2), (1, 2, 3, 4))
    seconds = [device_seconds(cost.predict(decoding(*each))) for each in streams]
    assert seconds == sorted(set(seconds))
    beside = cost.predict_beside([500, 500], decoding(1, 2)).seconds
    assert beside == cost.predict(decoding(1, 2, -1, -1)).seconds


def test_simulated_requests_have_adapters_and_pay_for_them() -> None:
    asked = [WorkloadRequest(0.0, 64, 40) for _ in range(6)]
    numbers = {heart_request(asked[0], number, "a", 4).adapter for number in range(60)}
    assert numbers == {0, 1, 2, 3}
    salts = {heart_request(asked[0], number, "a", 4).cache_salt for number in range(60)}
    assert len(salts) == 4 and heart_request(asked[0], 1, "a").adapter == -1

    def took_s(model: object, adapters: int) -> float:
        setup = replica_setup(model, "int8", KVKind.BF16, H100.machine, H100.memory_bytes, Sizes(512, 8, 1024))  # type: ignore[arg-type]
        fleet = Fleet(FleetPlan(replace(setup, adapters=adapters)), named_router("least-loaded"))
        return fleet.run(asked, None, None).end_s

    plain_s, one_s, many_s = took_s(MODEL, 0), took_s(ADAPTED, 1), took_s(ADAPTED, 8)
    assert took_s(ADAPTED, 0) == pytest.approx(plain_s, rel=0.01)
    assert plain_s < one_s < many_s
