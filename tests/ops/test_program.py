"""A compiled program does what its ops do one by one, with the contents of its operands at the moment when it runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.models.families.stored import write_checkpoint
from tests.runner.memories import memory_of, write_rows
from twostroke.backends.cpu import CpuOps
from twostroke.ops.quant.formats import weight_format
from twostroke.ops.step_memory import MemorySizes
from twostroke.runner.folder import load_folder
from twostroke.runner.forward import OpByOp
from twostroke.types.errors import BackendError
from twostroke.types.spec.formats import KVKind

SIZES = MemorySizes(num_pages=4, context_tokens=64, max_step_tokens=16, max_sequences=16)
PAGES = np.arange(4, dtype=np.int32)


@pytest.mark.parametrize("family", ["llama-head-32", "qwen2-biases", "qwen3-head-norms"])
@pytest.mark.parametrize("form", ["program", "plain"])
def test_compiled_and_direct_steps_agree_fused_or_not(family: str, form: str, tmp_path: Path) -> None:
    """Fused calls give the bits of the calls that they replace."""
    write_checkpoint(family, tmp_path)
    model, weights = load_folder(tmp_path, weight_format("int8"))
    ops = CpuOps(None, 2)
    memories = [memory_of(model, weights, KVKind.BF16, SIZES, each) for each in (model.program, getattr(model, form))]
    compiled = ops.compile(model.program, memories[0])
    direct = OpByOp(getattr(model, form), ops, memories[1])
    start = 0
    for token_ids in ([3, 1, 4, 1, 5], [2], [7, 1, 8], [2] * 16):
        sizes = [write_rows(memory, token_ids, start, PAGES) for memory in memories]
        assert np.array_equal(compiled(sizes[0]), direct(sizes[1]))
        start += len(token_ids)
    ops.close()


def test_logits_of_other_rows_and_of_none(tmp_path: Path) -> None:
    write_checkpoint("llama-tied", tmp_path)
    model, weights = load_folder(tmp_path, weight_format("f32"))
    ops = CpuOps(None, 1)
    memory = memory_of(model, weights, KVKind.F32, SIZES)
    compiled = ops.compile(model.program, memory)
    sizes = write_rows(memory, [3, 1, 4, 1, 5], 0, PAGES)
    whole = compiled(sizes).copy()
    assert compiled(sizes._replace(logit_rows=0)).shape == (0, model.vocab_size)
    assert np.array_equal(compiled.logits(np.array([4, 0], np.int32), sizes), whole[[4, 0]])
    ops.close()


def test_rows_that_the_sequences_do_not_have_are_refused_in_every_run(tmp_path: Path) -> None:
    write_checkpoint("llama-tied", tmp_path)
    model, weights = load_folder(tmp_path, weight_format("f32"))
    ops = CpuOps(None, 1)
    memory = memory_of(model, weights, KVKind.F32, SIZES)
    compiled = ops.compile(model.program, memory)
    sizes = write_rows(memory, [3, 1, 4, 1, 5], 0, PAGES)
    for wrong in (4, 6, 17):
        memory.batch.row_starts[1] = wrong
        with pytest.raises(BackendError, match="attention was refused"):
            compiled(sizes)
    memory.batch.row_starts[1] = 5
    compiled(sizes)
    memory.token_ids[2] = model.vocab_size
    with pytest.raises(BackendError, match="embed was refused"):
        compiled(sizes)
    ops.close()


def test_a_refused_op_is_named_and_wrong_operands_are_refused_at_once() -> None:
    ops = CpuOps(None, 1)
    x, out = np.ones((2, 8), np.float32), np.zeros((2, 8), np.float32)
    rows = np.array([0, 1], np.int32)
    recorder = ops.recorder()
    recorder.rms_norm(out, x, np.ones(8, np.float32), 1e-5)
    recorder.gather_rows(out, x, rows)
    assert not out.any()  # nothing ran
    calls = recorder.calls()
    ops.run(calls)
    assert np.array_equal(out, x)
    rows[1] = 7
    with pytest.raises(BackendError, match="gather_rows was refused"):
        ops.run(calls)
    with pytest.raises(BackendError, match="rms_norm: x must be"):
        recorder.rms_norm(out[:1], x, np.ones(8, np.float32), 1e-5)
    ops.run(ops.recorder().calls())
    ops.close()
