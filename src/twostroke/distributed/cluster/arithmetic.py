"""Describes what decides the bits of an answer: two replicas of equal Arithmetic give the same tokens and log
probabilities.

The formats tell how values are rounded, and `unit` tells which class of instructions adds them. The probe is the proof:
a hash of the log probabilities that this process computed for a fixed prompt.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from twostroke.distributed.wire.frames import Arithmetic, ReplicaFacts
from twostroke.engine.executor import Executor
from twostroke.ops.quant.formats import WHOLE_NAMES
from twostroke.types.cache_pools import CachePools
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.pooling import PooledRows, Pooling
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import MAX_TOP_LOGPROBS, SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS

OPS_VERSION, SAMPLING_VERSION = 2, 1
"""Versions that are raised with any change of the bits of an op, or of the sampler."""

PROBE_TOKENS = 40
ARITHMETIC_NAMES = Arithmetic.__struct_fields__


def unit_of(cpu_level: str, weights: str, kv_format: str) -> str:
    """Returns the name of the class of CPU levels to which a level belongs, for these formats of weights and KV. Levels
    of one class give the same bits: sums of whole numbers are exact, and vector levels add in one order."""
    if cpu_level == "generic":
        return "generic"
    whole = weights in WHOLE_NAMES and kv_format in WHOLE_NAMES
    if cpu_level == "amx" and not whole:
        return "matrix/amx"
    return "whole" if whole else "vector"


def arithmetic_of(
    executor: Executor,
    names: tuple[str, str, str, str],
    vocab_size: int,
    tables: str,
    pools: CachePools,
    step_tokens: int,
    pooling: Pooling | None = None,
) -> Arithmetic:
    """Returns the arithmetic of a replica, the facts that decide the bits of its answers. One fact is a hash of what
    the executor computes for a fixed prompt. The prompt is written to the first pages and the first slot of `pools`, so
    this must be called before any request is computed. names: CPU level, weights format, KV format, and the digest of
    the factors by which keys are scaled.

    tables: a fingerprint of the model's tables of rotary positions. step_tokens: the most tokens of one step; it
    changes no bit of an answer. pooling: the pooling of a model that makes vectors or scores.
    """
    cpu_level, weights, kv_format, key_factors = names
    return Arithmetic(
        ops=OPS_VERSION,
        weights=weights,
        kv_format=kv_format,
        key_factors=key_factors,
        unit=unit_of(cpu_level, weights, kv_format),
        tables=tables,
        sampling=SAMPLING_VERSION,
        probe=_probe(executor, vocab_size, pools, step_tokens)
        if pooling is None
        else _pooled_probe(executor, vocab_size, pools, pooling),
    )


def encoder_arithmetic(cpu_level: str, weights: str, kv_format: str, tables: str, rows: bytes) -> Arithmetic:
    """Returns the arithmetic of an encoder of images, the facts that decide the bits of its image rows. tables: a text
    that describes how the encoder computes its rotary positions. rows: the image rows that it made from a fixed
    tile."""
    return Arithmetic(
        ops=OPS_VERSION,
        weights=weights,
        kv_format=kv_format,
        key_factors="none",
        unit=unit_of(cpu_level, weights, kv_format),
        tables=hashlib.blake2b(tables.encode(), digest_size=8).hexdigest(),
        sampling=SAMPLING_VERSION,
        probe=hashlib.blake2b(rows, digest_size=16).hexdigest(),
    )


def _probe(executor: Executor, vocab_size: int, pools: CachePools, step_tokens: int) -> str:
    """Returns a hash of the exact bits of the best log probabilities (at most twenty) of the token after a fixed
    prompt."""
    known = tuple((7 * index + 3) % vocab_size for index in range(PROBE_TOKENS))
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=min(MAX_TOP_LOGPROBS, vocab_size))
    request = Request("probe", "probe", known, params, 0, 1, frozenset(), 0.0)
    slot, copies = (0, ((-1, 0),)) if pools.state_slots else (-1, ())
    for start in range(0, PROBE_TOKENS, step_tokens):
        end = min(PROBE_TOKENS, start + step_tokens)
        pages = (tuple(range(-(-end // PAGE_TOKENS))),) * len(pools.pages)
        last = end == PROBE_TOKENS
        planned = PlannedSequence(request, start, end - start, known, pages, last, Role.PREFILL, state_slot=slot)
        result = executor.execute(Plan(0, (planned,), state_copies=() if start else copies))
    digest = hashlib.blake2b(digest_size=16)
    (found,) = result.sampled["probe"]
    for token_id, logprob in found.logprob.top if found.logprob is not None else ():
        digest.update(struct.pack("<id", token_id, logprob))
    return digest.hexdigest()


def _pooled_probe(
    executor: Executor, vocab_size: int, pools: CachePools, pooling: Pooling
) -> str:
    """Returns a hash of the exact bits of the sum of the pooled rows of a text of one page."""
    known = tuple((7 * index + 3) % vocab_size for index in range(PAGE_TOKENS))
    params, rows = SamplingParams(temperature=0.0, max_tokens=1), PooledRows(pooling)
    request = Request("probe", "probe", known, params, 0, 0, frozenset(), 0.0, pooling=rows)
    slot, copies = (0, ((-1, 0),)) if pools.state_slots else (-1, ())
    pages, scores = ((0,),) * len(pools.pages), rows.positions(PAGE_TOKENS)
    planned = PlannedSequence(request, 0, PAGE_TOKENS, known, pages, False, Role.PREFILL, scores, slot)
    result = executor.execute(Plan(0, (planned,), state_copies=copies))
    return hashlib.blake2b(result.pooled["probe"], digest_size=16).hexdigest()


def difference(first: ReplicaFacts, other: ReplicaFacts) -> str:
    """Returns the first fact that must be equal in both replicas and is not, such as "weights (int8 and int4)". Returns
    an empty text where all these facts are equal.

    For a replica that encodes for others, only the facts of images are compared.
    """
    pairs = [
        ("the model", first.model, other.model),
        ("the rules of images", first.sight, other.sight),
        *[(f"the encoder's {name}", *_both(first.encoder, other.encoder, name)) for name in ARITHMETIC_NAMES],
    ]
    if "encode" not in (first.role, other.role):
        pairs += _of_texts(first, other)
    return next((f"{name} ({one} and {two})" for name, one, two in pairs if one != two), "")


def _both(first: Arithmetic | None, other: Arithmetic | None, name: str) -> tuple[Any, Any]:
    return getattr(first, name, None), getattr(other, name, None)


def _of_texts(first: ReplicaFacts, other: ReplicaFacts) -> list[tuple[str, Any, Any]]:
    """Returns the facts that decide answers to texts, as (name, first, other)."""
    return [
        *[(name, *_both(first.arithmetic, other.arithmetic, name)) for name in ARITHMETIC_NAMES],
        ("the page size", first.page_tokens, other.page_tokens),
        ("the context", first.context_tokens, other.context_tokens),
        ("the vocabulary", first.vocab_size, other.vocab_size),
        ("the adapters", first.adapters, other.adapters),
        ("the contents of adapters", first.adapter_salts, other.adapter_salts),
        ("--ttft", first.objectives.ttft_s, other.objectives.ttft_s),
        ("--itl", first.objectives.itl_s, other.objectives.itl_s),
    ]
