"""The memory plan of a device includes the scratch memory that kernels really take."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.bench.random_checkpoint import write_random
from tests.bits import digests
from tests.cuda.emulator.fake import controls, device
from tests.cuda.ops.operands import run_on
from tests.models.families.stored import config_of
from tests.ops.attention.test_entries_native import CONTEXTS, filled
from tests.ops.native import batch_of, normal
from tests.runner.memories import write_rows
from twostroke.backends.cpu.packer import NativePacker
from twostroke.backends.cuda.limits import scratch_bytes
from twostroke.models.common.registry import read_model
from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.entry_select import EntrySelect
from twostroke.ops.attention.index_select import IndexSelect
from twostroke.ops.operands import AttentionBatch, new_kv_layer
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import PagedKV
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.place_weights import placed
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights

ROWS = 40


@pytest.mark.parametrize("weights", ["f32", "int8"])
@pytest.mark.parametrize("family", ["deepseek-v4", "deepseek-v3.2", "llama2-multi-head"])
def test_what_kernels_take_was_planned(family: str, weights: str, tmp_path: Path) -> None:
    config = config_of(family)
    write_random(config, tmp_path)
    model, packer, formats = read_model(config), NativePacker(None, 1), format_choice(weights)
    with Checkpoint.open(tmp_path) as checkpoint:
        loaded = load_weights(checkpoint, model, formats, packer)
    packer.close()
    on = device()
    there = placed(loaded, on)
    memory = StepMemory(model.program, there.matrices, there.vectors, KVKind.BF16, digests.SIZES, on)
    forward = on.compile(model.program, memory)
    before = controls().fake_used()
    forward(write_rows(memory, [7] * ROWS, 0, np.arange(8, dtype=np.int32)))
    taken = controls().fake_used() - before
    on.close()
    assert 0 <= taken <= scratch_bytes(model.program, formats, ROWS)
    assert taken > 0 or weights == "f32"


@pytest.mark.parametrize(("family", "kind"), [("deepseek-v4", EntrySelect), ("deepseek-v3.2", IndexSelect)])
def test_scores_of_a_long_text_were_planned(family: str, kind: type[Op]) -> None:
    """Only these scores grow with the context."""
    call = next(call for call in read_model(config_of(family)).program.calls if isinstance(call, kind))
    behind = (call.rate,) if isinstance(call, EntrySelect) else ()
    layer, table = filled(KVKind.F32, 40, *(behind or (1,)))  # pages of latents have the same sizes as those of rate 1
    batch = batch_of((max(CONTEXTS),), (ROWS,), table[-1:])
    out, q, weights = np.zeros((ROWS, 9), np.float32), normal(ROWS, 2, 40), normal(ROWS, 2)
    on = device()
    before = controls().fake_used()
    run_on(on, call.NAME, out, q, weights, layer, batch, *behind)
    taken = controls().fake_used() - before
    on.close()
    alone = Program((call,), (), call.result, (), (), (), ())  # type: ignore[arg-type]
    assert 4096 <= taken <= scratch_bytes(alone, format_choice("f32"), max(CONTEXTS))


@pytest.mark.parametrize("kv_kind", [KVKind.BF16, KVKind.INT8])
@pytest.mark.parametrize("tokens", [500, 600])
def test_scores_and_partial_results_were_planned(kv_kind: KVKind, tokens: int) -> None:
    """Floats have partial results of several segments; whole numbers have scores too, also of one segment."""
    call = next(c for c in read_model(config_of("llama2-multi-head")).program.calls if isinstance(c, Attention))
    alone = Program((call,), (), call.result, (), (), (), ())  # type: ignore[arg-type]
    kind, heads = call.layer.kind, call.q.shape[0]
    assert isinstance(kind, PagedKV)
    layer = new_kv_layer(kv_kind, 40, kind.kv_heads, kind.head_dim)
    table = np.arange(40, dtype=np.int32)[None]
    batch = AttentionBatch(np.array([0, 3], np.int32), np.array([tokens], np.int32), table)
    q = normal(3, heads, kind.head_dim)
    on = device()
    before = controls().fake_used()
    run_on(on, "attention", np.zeros_like(q), q, layer, batch, 1.0, 0, 0.0, None, None, 0)
    taken = controls().fake_used() - before
    on.close()
    assert taken <= scratch_bytes(alone, format_choice("f32"), tokens)
    assert (taken > 0) == (tokens > 512 or kv_kind is KVKind.INT8)
