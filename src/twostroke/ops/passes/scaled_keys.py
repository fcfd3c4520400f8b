"""scaled_keys: the program with keys that are divided by one factor for each channel before they are kept.

A layer whose K is kept in int8 or int4 has one scale for each position and head, so one large channel makes all others
less precise. With factors, each channel of K is divided by its factor before it is written, and the same channel of
each query is multiplied by it before it is read. The scores stay the same: factors are powers of two, so that nothing
is rounded. (Per-channel keys: KIVI, Liu et al. 2024; KVQuant, Hooper et al. 2024; moving a factor from one side of a
product to the other: SmoothQuant, Xiao et al. 2023.) Both calls stand after the rotary embedding, so that the two
channels of a rotated pair may have different factors.

Apply this pass before the program is divided among ranks: `shard` gives each rank the factors of its heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.kv_write import KVWrite
from twostroke.ops.program.check import check
from twostroke.ops.program.op import Op
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import Cache, PagedKV, Vector, VectorForm
from twostroke.ops.rows.pointwise import PointStep, Pointwise, program_of


def scalable_caches(program: Program) -> dict[int, PagedKV]:
    """Returns the kinds of the caches whose keys can be divided by factors, by the caches' index. Only kv_write writes
    these caches, and only attention reads them."""
    written = {call.layer for call in program.calls if isinstance(call, KVWrite)}
    others = {
        item
        for call in program.calls
        if not isinstance(call, KVWrite | Attention)
        for item in call.operands()
        if isinstance(item, Cache)
    }
    kinds = {each.index: each.kind for each in written - others}
    return {index: kind for index, kind in sorted(kinds.items()) if isinstance(kind, PagedKV)}


def caches_without_bias(program: Program) -> tuple[int, ...]:
    """Returns the indices of the caches whose keys lose the shared part of their bias before they are kept (ADR 83), in
    order."""
    shifted = {
        call.out.root
        for call in program.calls
        if isinstance(call, Pointwise) and call.numbers is not None and call.numbers.form is VectorForm.SHARED_BIAS
    }
    writes = [call for call in program.calls if isinstance(call, KVWrite)]
    return tuple(sorted(call.layer.index for call in writes if call.k.root in shifted))


def with_scaled_keys(program: Program, factors: Mapping[int, tuple[float, ...]], suffix: str = "") -> Program:
    """Returns the program in which K is divided by factors before kv_write, and q is multiplied by them before
    attention. factors: kv_heads * head_dim powers of two for each cache, by the cache's index; a cache without factors
    stays as it is. suffix: the end of the names of the added vectors.

    Raises ValueError for another number of factors. Raises it also where another call reads the same K or q, because
    both are changed in place.
    """
    kinds = scalable_caches(program)
    vectors: dict[str, Vector] = {}
    calls: list[Op] = []
    for call in program.calls:
        if isinstance(call, KVWrite | Attention) and call.layer.index in factors:
            value, part = (call.k, "k") if isinstance(call, KVWrite) else (call.q, "q")
            heads = value.shape[0]
            numbers = _numbers(part, heads, kinds[call.layer.index], factors[call.layer.index])
            key = f"key_factors:{call.layer.index}:{part}{heads}{suffix}"
            vector = vectors.setdefault(key, Vector(key, len(numbers), (), numbers=numbers))
            written = value.flat().written()
            calls.append(Pointwise(written, program_of(PointStep.TIMES_NUMBERS), numbers=vector))
            scaled = written.heads(heads)
            calls.append(replace(call, k=scaled) if isinstance(call, KVWrite) else replace(call, q=scaled))
        else:
            calls.append(call)
    made = Program.of(tuple(calls), program.logits, program.given, program.kept)
    check(made)
    return made


def _numbers(part: str, heads: int, kind: PagedKV, factors: tuple[float, ...]) -> tuple[float, ...]:
    """Returns the numbers by which the channels of K or of q are multiplied. For K they are 1 / factor. For each query
    head they are the factors of the KV head that it reads."""
    if len(factors) != kind.kv_heads * kind.head_dim:
        raise ValueError(f"{len(factors)} factors do not fit {kind.kv_heads} heads of {kind.head_dim} channels")
    if part == "k":
        return tuple(1 / factor for factor in factors)
    read = [head * kind.kv_heads // heads for head in range(heads)]
    return tuple(factor for head in read for factor in factors[head * kind.head_dim : (head + 1) * kind.head_dim])
