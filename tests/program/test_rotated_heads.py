"""K and V that are rotated before they become integers: the program is complete, and large channels cost less
accuracy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.models.families.stored import config_of
from tests.ops.native import LEVELS
from twostroke.assembly.calibrated_keys import with_rotation
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import AttentionBatch, F32Array, new_kv_layer
from twostroke.ops.passes.rotated_heads import with_rotated_heads
from twostroke.ops.passes.scaled_keys import scalable_caches
from twostroke.ops.program.check import check
from twostroke.ops.rows.rotate_heads import RotateHeads, reference
from twostroke.types.spec.formats import KVKind

TOKENS = 70


@pytest.mark.parametrize("family", ["gpt2", "mixtral-experts", "llama2-multi-head"])
def test_every_cache_of_k_and_v_is_rotated_and_nothing_else(family: str) -> None:
    program = read_model(config_of(family)).plain
    made = with_rotated_heads(program)
    check(made)
    added = [call for call in made.calls if isinstance(call, RotateHeads)]
    assert len(added) == 4 * len(scalable_caches(program)) > 0
    assert len(made.calls) == len(program.calls) + len(added)


def seen(ops: CpuOps, kind: KVKind, q: F32Array, k: F32Array, v: F32Array, rotated: bool) -> F32Array:
    """The result of attention over pages of this kind."""
    if rotated:
        for x, inverse in ((q, 1), (k, 0), (v, 0)):
            reference(x, x.copy(), inverse)
    layer = new_kv_layer(kind, 8, k.shape[1], k.shape[2])
    ops.kv_write(layer, k, v, np.arange(TOKENS, dtype=np.int32))
    ends, table = np.array([TOKENS], np.int32), np.arange(8, dtype=np.int32)[None]
    batch, out = AttentionBatch(np.array([0, len(q)], np.int32), ends, table), np.empty_like(q)
    ops.attention(out, q, layer, batch, k.shape[2] ** -0.5, 0, 0.0, None, None, 0)
    if rotated:
        reference(out, out.copy(), 1)
    return out


@pytest.mark.parametrize("dim", [64, 80, 128, 256])
@pytest.mark.parametrize("kind", [KVKind.INT8, KVKind.INT4])
@pytest.mark.parametrize("level", LEVELS)
def test_large_channels_cost_less(level: str, kind: KVKind, dim: int) -> None:
    rng, ops = np.random.default_rng(dim), CpuOps(level, 1)
    q, k, v = (rng.standard_normal((rows, 2, dim), dtype=np.float32) for rows in (9, TOKENS, TOKENS))
    k[..., 3] *= 30
    v[..., 5] *= 30
    q[..., 3] /= 30
    exact = seen(ops, KVKind.F32, q.copy(), k.copy(), v.copy(), False)
    errors = [seen(ops, kind, q.copy(), k.copy(), v.copy(), rotated) - exact for rotated in (False, True)]
    ops.close()
    plain, rotated = (float(np.sqrt(np.mean(error[..., :5] ** 2))) for error in errors)
    assert rotated < plain / 2


def test_the_engine_rotates_where_k_and_v_are_integers() -> None:
    spec: Any = read_model(config_of("llama2-multi-head"))
    for kind in KVKind:
        made = with_rotation(replace(spec), kind)
        for program in (made.plain, made.program):
            assert any(isinstance(call, RotateHeads) for call in program.calls) == kind.is_integer
