"""Laws of every architecture's program: it passes check, and each call has a reference, a cost and a kernel."""

from __future__ import annotations

from functools import cache

import pytest

from tests.models.families import FAMILIES, stored_shapes
from tests.program.test_place import run_over_lines
from twostroke.backends.cpu.library import best_level, op_numbers
from twostroke.models.common.registry import architectures, read_model
from twostroke.ops.registry import registry
from twostroke.program.check import check
from twostroke.program.model import Model
from twostroke.program.op import Op, OpCost, StoredFormats
from twostroke.program.program import Program
from twostroke.quant.formats import FORMATS, format_choice
from twostroke.spec.formats import KVKind
from twostroke.weights.tensors import wanted_tensors


@cache
def model_of(family: str) -> Model:
    return read_model(FAMILIES[family]().to_dict())


def forms(family: str) -> tuple[Program, Program]:
    return model_of(family).plain, model_of(family).program


def test_every_architecture_has_a_tiny_config_here() -> None:
    assert {model_of(family).architecture for family in FAMILIES} == set(architectures())


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_read_before_it_is_written_or_after_its_place_is_taken(family: str) -> None:
    for program in forms(family):
        check(program)
        run_over_lines(program, tokens=5, logit_rows=3)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_call_has_a_reference_a_cost_and_a_kernel(family: str) -> None:
    numbers = op_numbers(best_level())
    for call in (call for program in forms(family) for call in program.calls):
        assert registry()[call.NAME] is type(call)
        assert callable(type(call).reference) and call.NAME in numbers
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


@pytest.mark.parametrize("family", FAMILIES)
def test_the_checkpoint_that_transformers_writes_holds_what_the_program_reads(family: str) -> None:
    """Names, shapes and the count of parameters, of a model on the meta device: nothing is allocated."""
    import torch
    import transformers

    with torch.device("meta"):
        judge = transformers.AutoModelForCausalLM.from_config(FAMILIES[family]())
    shapes = stored_shapes(judge)
    for tensor in wanted_tensors(model_of(family)):
        assert shapes[tensor.name] == tensor.shape
    assert model_of(family).parameters() == sum(parameter.numel() for parameter in judge.parameters())
