"""What decides the bits of an answer: two replicas of equal Arithmetic give the same tokens and log probabilities.

Formats say what is rounded, `unit` which class of instructions adds, and the probe is the proof: a hash of log
probabilities that this very process computed for a fixed prompt.

Knows: an executor, formats' names.
Must not know: sockets, fleets.
"""

from __future__ import annotations

import hashlib
import struct

from twostroke.engine.executor import Executor
from twostroke.fleet.wire import Arithmetic
from twostroke.types.cache_pools import CachePools
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.sampling_params import MAX_TOP_LOGPROBS, SamplingParams

OPS_VERSION, SAMPLING_VERSION = 1, 1
"""Raised with any change of the bits of an op, or of the sampler."""

PROBE_TOKENS = 40
WHOLE = ("int8", "int4")


def unit_of(cpu_level: str, weights: str, kv_format: str) -> str:
    """Levels of one class give the same bits: sums of whole numbers are exact, and vector levels add in one order."""
    if cpu_level == "generic":
        return "generic"
    if cpu_level == "amx" and not (weights in WHOLE and kv_format in WHOLE):
        return "matrix/amx"
    return "whole" if weights in WHOLE and kv_format in WHOLE else "vector"


def arithmetic_of(
    executor: Executor, names: tuple[str, str, str], vocab_size: int, page_tokens: int, tables: str, pools: CachePools
) -> Arithmetic:
    """names: cpu level, weights format, KV format. The probe uses the first pages and the first slot of pools that
    nobody uses yet."""
    cpu_level, weights, kv_format = names
    return Arithmetic(
        ops=OPS_VERSION,
        weights=weights,
        kv_format=kv_format,
        unit=unit_of(cpu_level, weights, kv_format),
        tables=tables,
        sampling=SAMPLING_VERSION,
        probe=_probe(executor, vocab_size, page_tokens, pools),
    )


def _probe(executor: Executor, vocab_size: int, page_tokens: int, pools: CachePools) -> str:
    """A prompt in one step, and the twenty best log probabilities of what comes next, exactly."""
    known = tuple((7 * index + 3) % vocab_size for index in range(PROBE_TOKENS))
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=min(MAX_TOP_LOGPROBS, vocab_size))
    request = Request("probe", "probe", known, params, 0, 1, frozenset(), 0.0)
    pages = (tuple(range(-(-PROBE_TOKENS // page_tokens))),) * len(pools.pages)
    slot, copies = (0, ((-1, 0),)) if pools.state_slots else (-1, ())
    planned = PlannedSequence(request, 0, PROBE_TOKENS, known, pages, True, Role.PREFILL, state_slot=slot)
    result = executor.execute(Plan(0, (planned,), state_copies=copies))
    digest = hashlib.blake2b(digest_size=16)
    (found,) = result.sampled["probe"]
    for token_id, logprob in found.logprob.top if found.logprob is not None else ():
        digest.update(struct.pack("<id", token_id, logprob))
    return digest.hexdigest()
