"""Values that are given before a step and kept after it, and the hidden states of a model."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from twostroke.assets import spark_medusa_path, spark_path
from twostroke.models.common.blocks.heads.medusa import MedusaConfig, medusa_program, read_medusa
from twostroke.ops.products.linear import linear
from twostroke.ops.program.check import check
from twostroke.ops.program.hidden import last_hidden, with_hidden_kept
from twostroke.ops.program.place import place
from twostroke.ops.program.trace import Tracer
from twostroke.ops.program.values import Value
from twostroke.ops.quant.formats import F32
from twostroke.ops.rows.activation import Activation
from twostroke.ops.rows.expressions import activate, add
from twostroke.ops.step_memory import StepSizes
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import load_folder, read_folder
from twostroke.runner.forward import OpByOp
from twostroke.runner.medusa import medusa_memory
from twostroke.types.spec.fields import Fields
from twostroke.weights.loaded import ModelWeights


def overlapping(t: Tracer, given: Value) -> tuple[Value, Value]:
    """Two results of a given value that is read last, so that its memory must be its own from the beginning."""
    first = linear(t.given(32), t.matrix("a", {"a": 64}, 32))
    second = activate(linear(given, t.matrix("b", {"b": 64}, 64)), Activation.SILU)
    return first, second


def test_given_and_kept_values_have_memory_of_their_own() -> None:
    t = Tracer()
    given = t.given(64)
    first, second = overlapping(t, given)
    program = t.program(second, kept=(first,))
    check(program)
    offsets = place(program, 16, 1).offsets
    spans = [(offsets[value.root], 16 * value.width * 4) for value in (given, first, second)]
    for index, (begin, size) in enumerate(spans):
        for other, length in spans[index + 1 :]:
            assert begin + size <= other or other + length <= begin


def test_a_kept_value_that_is_overwritten_is_refused() -> None:
    t = Tracer()
    first, second = overlapping(t, t.given(64))
    program = t.program(add(first, second), kept=(first,))
    with pytest.raises(ValueError, match="kept value reads"):
        check(program)


def test_the_last_hidden_states_are_what_the_output_matrix_reads() -> None:
    model = read_folder(spark_path())
    found = last_hidden(model.program)
    assert found.matrix is model.program.weights[0]  # the head and the embedding are one matrix
    assert (found.rows.width, found.body.width) == (256, 256)
    kept = with_hidden_kept(model.program)
    check(kept)
    assert place(kept, 64, 8).num_bytes >= place(model.program, 64, 8).num_bytes


@pytest.mark.parametrize("own", [False, True])
def test_a_medusa_program_is_the_formula(own: bool) -> None:
    rng = np.random.default_rng(1)
    _, weights = load_folder(spark_path(), F32)
    matrix = last_hidden(read_folder(spark_path()).program).matrix
    table = weights.matrices[matrix.key]
    made = medusa_program(MedusaConfig(2, 2, own), 256, matrix)
    matrices = {}
    for weight in made.program.weights:
        same = table if weight.rows == table.rows else replace(table, rows=256, data=table.data[: 256 * 256 * 4])
        bias = rng.normal(size=256).astype(np.float32) if weight.bias else None
        matrices[weight.key] = replace(same, bias=bias)
    memory = medusa_memory(made, ModelWeights(matrices, {}))
    sizes = StepSizes(3, 0, 0)
    hidden = rng.normal(size=(3, 256)).astype(np.float32)
    memory.value(made.hidden, sizes)[...] = hidden
    from twostroke.ops.reference import ReferenceOps

    logits = OpByOp(made.program, ReferenceOps(), memory)(sizes).reshape(3, 2, 4096)
    for head in range(2):
        x = hidden
        for layer in range(2):
            packed = matrices[f"{head}.{layer}.linear:medusa"]
            y = x @ unpack(packed).T + packed.bias
            x = x + y / (1 + np.exp(-y))
        np.testing.assert_allclose(logits[:, head], x @ unpack(table).T, rtol=1e-4, atol=1e-3)


def test_the_config_that_ships() -> None:
    fields = Fields(json.loads((spark_medusa_path() / "config.json").read_text()), "config.json")
    config = read_medusa(fields)
    assert config.num_heads > 1 and not config.own_matrix
