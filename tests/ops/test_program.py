"""A recorded step does what the ops do one by one, on the operands' contents of the moment it runs."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models.families import make_checkpoint
from twostroke.backends.cpu import CpuOps
from twostroke.models.batch import Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.models.rope_tables import rope_table
from twostroke.ops.operands import AttentionBatch, new_kv_layer
from twostroke.quant.formats import weight_format
from twostroke.runner.forward import Directly, Recorded
from twostroke.spec.formats import KVKind
from twostroke.types.errors import BackendError
from twostroke.weights.load import load_folder


def batch_of(token_ids: list[int]) -> Batch:
    tokens = len(token_ids)
    attention = AttentionBatch(
        np.array([0, tokens], np.int32), np.array([tokens], np.int32), np.arange(4, dtype=np.int32)[None].copy()
    )
    positions = np.arange(tokens, dtype=np.int32)
    return Batch(
        np.array(token_ids, np.int32), positions, positions.copy(), attention, np.array([tokens - 1], np.int32)
    )


@pytest.mark.parametrize("family", ["llama-head-32", "qwen2-biases", "qwen3-head-norms"])
def test_recorded_and_direct_steps_agree(family: str, tmp_path) -> None:
    make_checkpoint(family, tmp_path)
    spec, weights = load_folder(tmp_path, weight_format("int8"))
    ops = CpuOps(None, 2)
    model = LlamaModel(spec, weights, rope_table(spec.rope, 64), ops)

    def memory():
        kv = [new_kv_layer(KVKind.BF16, 4, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
        return kv, Buffers(spec, 16, 1)

    recorded, direct = Recorded(model, ops, *memory()), Directly(model, *memory())
    batch = batch_of([3, 1, 4, 1, 5])
    for token_ids in ([3, 1, 4, 1, 5], [2, 7, 1, 8, 2]):
        batch.token_ids[:] = token_ids
        assert np.array_equal(recorded(batch), direct(batch))
    ops.close()


def test_a_refused_op_is_named_and_wrong_operands_are_refused_at_once() -> None:
    ops = CpuOps(None, 1)
    x, out = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    rows = np.array([0, 1], np.int32)
    recorder = ops.recorder()
    recorder.rms_norm(out, x, np.ones(8, np.float32), 1e-5)
    recorder.gather_rows(out, x, rows)
    assert not out.any()  # nothing ran
    program = recorder.program()
    ops.run(program)
    assert np.array_equal(out, x)
    rows[1] = 7
    with pytest.raises(BackendError, match="gather_rows was refused"):
        ops.run(program)
    with pytest.raises(BackendError, match="rms_norm: out must be"):
        recorder.rms_norm(out[:1], x, np.ones(8, np.float32), 1e-5)
    ops.run(ops.recorder().program())
    ops.close()
