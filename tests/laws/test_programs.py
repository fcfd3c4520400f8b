"""Laws of every architecture's program: it passes check, and each call has a reference, a cost and a kernel."""

from __future__ import annotations

from functools import cache

import pytest

from tests.models.families.stored import FAMILIES, config_of
from tests.program.test_place import run_over_lines
from twostroke.backends.cpu.library import available_levels, op_numbers
from twostroke.models.common.registry import architectures, read_model
from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.chosen_latent_attention import ChosenLatentAttention
from twostroke.ops.attention.index_select import IndexSelect
from twostroke.ops.attention.kv_write import KVWrite
from twostroke.ops.attention.latent_attention import LatentAttention
from twostroke.ops.attention.latent_write import LatentWrite
from twostroke.ops.program.check import check
from twostroke.ops.program.model import Model
from twostroke.ops.program.op import Op, OpCost, StoredFormats
from twostroke.ops.program.program import Program
from twostroke.ops.quant.formats import FORMATS, format_choice
from twostroke.ops.registry import registry
from twostroke.types.spec.formats import KVKind


@cache
def model_of(family: str) -> Model:
    return read_model(config_of(family))


def forms(family: str) -> tuple[Program, Program]:
    return model_of(family).plain, model_of(family).program


def test_every_architecture_has_a_tiny_config_here() -> None:
    known = {entry.name for entry in architectures().values()}
    assert {model_of(family).architecture for family in FAMILIES} == known


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_read_before_it_is_written_or_after_its_place_is_taken(family: str) -> None:
    for program in forms(family):
        check(program)
        run_over_lines(program, tokens=5, logit_rows=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_has_a_reference_a_cost_and_a_kernel(family: str) -> None:
    numbers = [op_numbers(level) for level in available_levels()]
    for call in (call for program in forms(family) for call in program.calls):
        assert registry()[call.NAME] is type(call)
        assert callable(type(call).reference) and all(call.NAME in level for level in numbers)
        assert type(call).cost is not Op.cost
        for name in FORMATS:
            for kind in KVKind:
                assert call.cost(StoredFormats(format_choice(name), kind)) != OpCost()


@pytest.mark.parametrize("family", FAMILIES)
def test_fusing_keeps_every_weight_and_each_has_a_name_of_its_own(family: str) -> None:
    plain, fused = forms(family)
    for kind in ("weights", "vectors", "caches", "ropes"):
        assert set(getattr(plain, kind)) == set(getattr(fused, kind))
    keys = [item.key for item in (*fused.weights, *fused.vectors)]
    assert len(keys) == len(set(keys))
    assert plain.parameters == fused.parameters > 0


READERS = Attention | LatentAttention | ChosenLatentAttention | IndexSelect


@pytest.mark.parametrize("family", FAMILIES)
def test_no_weight_is_named_in_vain_and_no_result_is_thrown_away(family: str) -> None:
    for program in forms(family):
        rates = [rope.rates for rope in program.ropes]
        for kind in ("weights", "vectors", "caches", "ropes"):
            for item in getattr(program, kind):
                assert any(item in call.operands() for call in program.calls) or item in rates
        kept = {program.logits.root}
        for call in reversed(program.calls):
            assert call.result is None or call.result.root in kept, f"no call reads what {call.NAME} makes"
            kept |= {value.root for value in call.reads()}
        written = {id(call.layer) for call in program.calls if isinstance(call, KVWrite | LatentWrite)}
        read = {id(call.layer) for call in program.calls if isinstance(call, READERS)}
        assert read <= written
