"""scaled_keys: the program with keys that are divided by one factor for each channel before they are kept.

A layer whose K is kept in int8 or int4 has one scale for each position and head, so one large channel takes the
precision of all others. With factors each channel of K is divided by its factor before it is written, and the same
channel of each query is multiplied by it before it is read. The scores stay the same: factors are powers of two, so
that nothing is rounded. (Per-channel keys: KIVI, Liu et al. 2024; KVQuant, Hooper et al. 2024; moving a factor from
one side of a product to the other: SmoothQuant, Xiao et al. 2023.) Both stand behind the rotation, so that the two
channels of a rotated pair may have factors of their own.

Take the program before it is divided among ranks: `shard` gives each rank the factors of its heads.

Knows: attention, kv_write, scale_columns.
Must not know: files, how factors are found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.kv_write import KVWrite
from twostroke.ops.rows.scale_columns import ScaleColumns
from twostroke.program.op import Op
from twostroke.program.program import Program
from twostroke.program.values import Cache, Value, Vector

KEY = "key_factors"


def scalable_caches(program: Program) -> dict[int, Cache]:
    """The caches whose keys can have factors, by index: those that kv_write writes and attention alone reads."""
    written = {call.layer for call in program.calls if isinstance(call, KVWrite)}
    others = {
        item
        for call in program.calls
        if not isinstance(call, KVWrite | Attention)
        for item in call.operands()
        if isinstance(item, Cache)
    }
    return {cache.index: cache for cache in program.caches if cache in written and cache not in others}


def with_scaled_keys(program: Program, factors: Mapping[int, tuple[float, ...]], suffix: str = "") -> Program:
    """Add the calls. factors: of caches by index, kv_heads * head_dim powers of two each; a cache without stays as it
    is. suffix: the end of the vectors' keys. Raises ValueError for other counts.
    """
    scaled = scalable_caches(program)
    vectors: dict[tuple[int, int], Vector] = {}
    calls: list[Op] = []
    for call in program.calls:
        if isinstance(call, KVWrite | Attention) and call.layer.index in factors:
            calls += _scaled(call, scaled[call.layer.index], factors[call.layer.index], vectors, suffix)
        else:
            calls.append(call)
    return Program.of(tuple(calls), program.logits, program.given, program.kept)


def _scaled(
    call: KVWrite | Attention,
    cache: Cache,
    factors: tuple[float, ...],
    vectors: dict[tuple[int, int], Vector],
    suffix: str,
) -> Iterator[Op]:
    """The call behind one that scales what it reads. A key meets 1 / factor, each query head the factors of its K."""
    head_dim, kv_heads = cache.kind.head_dim, cache.kind.kv_heads  # type: ignore[union-attr]
    if len(factors) != kv_heads * head_dim:
        raise ValueError(f"{len(factors)} factors for {kv_heads} heads of {head_dim} channels")
    value = call.k if isinstance(call, KVWrite) else call.q
    heads = value.shape[0]
    at = (cache.index, heads if isinstance(call, Attention) else 0)
    if at not in vectors:
        numbers = tuple(1 / factor for factor in factors)
        if isinstance(call, Attention):
            numbers = tuple(
                factors[head * kv_heads // heads * head_dim + channel]
                for head in range(heads)
                for channel in range(head_dim)
            )
        vectors[at] = Vector(f"{KEY}:{at[0]}:{at[1]}{suffix}", len(numbers), (), numbers=numbers)
    written = value.flat().written()
    yield ScaleColumns(written, vectors[at])
    yield replace(call, **{"k" if isinstance(call, KVWrite) else "q": written.heads(heads)})
