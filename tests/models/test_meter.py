"""The meter's counts for a whole model against the textbook formulas."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.models.families import make_checkpoint
from twostroke.backends.meter import MeterOps
from twostroke.cost.work import Work
from twostroke.models.batch import LINE_BYTES, Batch, Buffers
from twostroke.models.llama import LlamaModel
from twostroke.models.rope_tables import rope_table
from twostroke.ops.operands import AttentionBatch, new_kv_layer
from twostroke.quant.formats import weight_format
from twostroke.spec.formats import PAGE_TOKENS, KVKind
from twostroke.spec.model import MatrixRole
from twostroke.weights.load import load_folder

ROWS = {"one token at position 99": (1, 100), "a chunk of 24 after 40": (24, 64)}


@pytest.mark.parametrize(("tokens", "context"), ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("name", ["f32", "bf16", "int8", "int4"])
def test_flops_and_bytes_of_a_step(tmp_path: Path, tokens: int, context: int, name: str) -> None:
    """2 FLOPs a weight and token, 4 a visible position, head and dimension; each weight read once."""
    make_checkpoint("llama3-grouped", tmp_path)
    spec, weights = load_folder(tmp_path, weight_format(name))
    meter = MeterOps()
    model = LlamaModel(spec, weights, rope_table(spec.rope, spec.max_positions), meter)
    pages = -(-context // PAGE_TOKENS)
    batch = Batch(
        token_ids=np.zeros(tokens, np.int32),
        positions=np.arange(context - tokens, context, dtype=np.int32),
        slots=np.arange(context - tokens, context, dtype=np.int32),
        attention=AttentionBatch(
            np.array([0, tokens], np.int32),
            np.array([context], np.int32),
            np.arange(pages, dtype=np.int32)[None, :],
        ),
        logit_rows=np.array([tokens - 1], np.int32),
    )
    kv = [new_kv_layer(KVKind.BF16, pages, spec.num_kv_heads, spec.head_dim) for _ in range(spec.num_layers)]
    model.forward(batch, kv, Buffers(spec, tokens, 1))

    matrices = [w for layer in weights.layers for w in (layer.qkv, layer.o, layer.gate_up, layer.down)]
    layer_weights = sum(weight.rows * weight.columns for weight in matrices)
    linear_flops = 2 * tokens * layer_weights + 2 * spec.vocab_size * spec.hidden_size
    products = sum((meter.work[name] for name in ("linear", "linear_add", "feed_forward")), Work())
    assert abs(products.flops - linear_flops) <= 0.02 * linear_flops
    visible = sum(position + 1 for position in range(context - tokens, context))
    assert meter.work["attention"].flops == 4 * visible * spec.num_heads * spec.head_dim * spec.num_layers
    kv_bytes = 2 * spec.num_layers * context * spec.num_kv_heads * spec.head_dim * 2
    assert meter.work["attention"].kv_bytes == kv_bytes == context * spec.kv_bytes_per_token(KVKind.BF16)
    chosen = weight_format(name)
    once = {role: spec.matrix_count(role) for role in MatrixRole if role is not MatrixRole.EMBEDDING}
    once[MatrixRole.HEAD] = 1  # a tied model reads its embedding as the head
    packed = sum(chosen.total_bytes(*spec.matrix_shape(role)) * count for role, count in once.items())
    assert products.weight_bytes == packed


@pytest.mark.parametrize("tokens", [1, 3, 17])
def test_activations_begin_at_cache_lines(tmp_path: Path, tokens: int) -> None:
    make_checkpoint("llama-tied", tmp_path)
    spec, _ = load_folder(tmp_path, weight_format("f32"))
    for name, array in vars(Buffers(spec, tokens, tokens)).items():
        assert array.ctypes.data % LINE_BYTES == 0 and array.flags.c_contiguous, name
