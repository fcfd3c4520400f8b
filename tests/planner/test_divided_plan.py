"""Plans and predictions of a model over several processes: parts, exchanged bytes, refusals, steps."""

from __future__ import annotations

import pytest

from tests.cost.machines import SPEC, calibration
from tests.planner.figures import LLAMA3_70B
from twostroke.cost.calibration import Calibration, ExchangeRates
from twostroke.cost.exchange import LinkRates
from twostroke.cost.shape import Segment
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.divided_plan import DividedPlan, make_divided_plan
from twostroke.lab.planner.divided_text import divided_text
from twostroke.lab.planner.target import named_target
from twostroke.lab.sim.setup import Sizes, replica_setup
from twostroke.models.common.divided import ParallelPlan, cost_of
from twostroke.models.common.registry import read_model
from twostroke.ops.passes.division import PIPELINE, TENSOR, Division
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import INT8, format_choice
from twostroke.types.errors import ConfigError, OutOfMemory
from twostroke.types.spec.formats import KVKind

LINK = LinkRates(5e-6, 2e9, "a test")


def plan(spec: Model, division: Division, hardware: str = "h100-sxm", concurrency: int = 2) -> DividedPlan:
    ask = make_ask(spec, "int8", "bf16", 512, None, concurrency)
    return make_divided_plan("a model", spec, ask, named_target(hardware), ParallelPlan(division, LINK))


def test_two_ranks_send_what_can_be_counted_by_hand() -> None:
    found = plan(read_model(SPEC), Division(TENSOR, 2))
    assert [part.name for part in found.parts] == ["rank 0", "rank 1"]
    hidden, inner, layers, vocab = 256, 512, 4, 1024
    for part in found.parts:
        # Half of attended, o, activated and down go to one other rank, in float32, because codes of rotated columns do
        # not travel.
        assert INT8.rotated
        assert part.row_bytes == layers * 4 * (3 * hidden // 2 + inner // 2)
        # The losses of the 20 largest logits, and their numbers, are gathered after the logits.
        assert part.logit_row_bytes == 4 * vocab // 2 + 4 * 2 * 20
        assert part.meetings == 4 * layers + 2
        assert part.kv_bytes_per_token == layers * 2 * 1 * 64 * 2  # one of two K and V heads
        assert part.decode_sent_bytes == 2 * (part.row_bytes + part.logit_row_bytes)
    whole = read_model(SPEC).weight_bytes(found.ask.format_for)
    assert whole / 2 < found.parts[0].weight_bytes < 0.7 * whole  # norms and embeddings are on each rank


def test_stages_hand_one_row_over_and_share_the_layers() -> None:
    found = plan(read_model(SPEC), Division(PIPELINE, 3))
    assert [(part.row_bytes, part.meetings) for part in found.parts] == [(1024, 1), (1024, 1), (0, 0)]
    assert sum(part.kv_bytes_per_token for part in found.parts) == read_model(SPEC).kv_bytes_per_token(KVKind.BF16)
    text = divided_text(found)
    assert "over 3 stages" in text and "predicted:" in text and "holds the whole model" in text


def test_what_no_process_holds_is_refused_with_the_counts_that_would_do() -> None:
    spec = read_model(LLAMA3_70B)
    with pytest.raises(OutOfMemory, match="does not fit with --pipeline-parallel 2") as error:
        plan(spec, Division(PIPELINE, 2), "rtx-4090")
    assert error.value.fix == "These counts would do: --tensor-parallel 4 or --pipeline-parallel 4."
    for way in (TENSOR, PIPELINE):
        assert plan(spec, Division(way, 4), "rtx-4090").sequences > 0
    assert plan(spec, Division(PIPELINE, 4), "rtx-4090").whole_sequences == 0
    with pytest.raises(ConfigError, match="among 3 ranks"):
        plan(spec, Division(TENSOR, 3))


@pytest.mark.parametrize("division", [Division(TENSOR, 2), Division(PIPELINE, 3)], ids=str)
def test_a_step_costs_the_work_and_the_exchange(division: Division) -> None:
    spec, machine = read_model(SPEC), calibration()
    cost = cost_of(spec, "int8", KVKind.BF16, machine, ParallelPlan(division, LINK))
    inner = cost_of(division.counted(spec), "int8", KVKind.BF16, machine, None)
    sent = division.exchange(spec, format_choice("int8"))
    chunks = [Segment.prefill(0, 30, False)]
    exchange_s = 5e-6 * sent.meetings + 30 * sent.row_bytes / 2e9
    assert cost.predict(chunks).seconds == pytest.approx(inner.predict(chunks).seconds + exchange_s)
    starts = [3, 70, 200]
    whole = [cost.predict([Segment.decode(start + step) for start in starts]) for step in range(9)]
    assert list(cost.decode_run(starts, 9)) == [each.seconds for each in whole]
    both = cost.predict([*(Segment.decode(start) for start in starts), *chunks])
    assert cost.predict_beside(starts, chunks) == both
    assert whole[0].seconds > inner.predict([Segment.decode(start) for start in starts]).seconds


def test_a_simulated_replica_of_two_processes_has_the_memory_of_both() -> None:
    spec, sizes = read_model(SPEC), Sizes(512, 8)
    memory = 460_000_000

    def tokens(divided: ParallelPlan | None) -> int:
        return replica_setup(spec, "int8", KVKind.F32, calibration(), memory, sizes, divided).kv_tokens

    alone, two = tokens(None), tokens(ParallelPlan(Division(TENSOR, 2), LINK))
    assert two > 1.9 * alone


def test_what_was_measured_of_the_exchange_is_kept() -> None:
    rates = ExchangeRates(4e-6, 3e9)
    assert Calibration.from_json(calibration(exchange=rates).as_json()).exchange == rates
    assert Calibration.from_json(calibration().as_json()).exchange is None
