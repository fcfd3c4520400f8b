"""What would help against a cause of a completion's time, and by how much, by the cost model; and what would not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.cost.explain.causes import ExplainContext, kv_share, prefill_s, weight_share
from twostroke.cost.explain.explanation import Advice, Cause, CauseKind, duration, short
from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.shape import Bound, Segment, StepCost
from twostroke.cost.what_if import WhatIf
from twostroke.types.plan import Hold
from twostroke.types.recorded.prefix import MissReason
from twostroke.types.spec.formats import KVKind

LEAST_CAUSE_SHARE = 0.05
"""A cause with a smaller share of the completion's time gets no advice."""

LEAST_SAVED_SHARE = 0.01
"""Advice that saves a smaller share of the completion's time is not given."""

LEAST_FACTOR = 1.1
"""A change that makes a step faster by less than this factor does not count as help."""

LEAST_CHUNK_TOKENS = 32


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that advice could change, with their present values. step_tokens: --max-step-tokens. max_sequences:
    --max-sequences.

    step_rule: the name of the rule that limits the prompt tokens of steps which also decode; empty if only
    max_step_tokens limits them.
    """

    step_tokens: int
    max_sequences: int
    step_rule: str = ""


def advice_for(context: ExplainContext, causes: list[Cause], what_if: WhatIf | None, options: Options) -> list[Advice]:
    """Returns advice against the causes: first what saves most, last what would not help."""
    found: list[Advice] = []
    for cause in causes:
        if cause.seconds < LEAST_CAUSE_SHARE * context.account.e2e_s:
            continue
        if cause.kind is CauseKind.DECODE:
            found += _decode(context, cause, what_if)
        elif cause.kind is CauseKind.OWN_PREFILL:
            found += _own_prefill(context, cause, what_if)
        elif cause.kind is CauseKind.STRETCHED:
            found += _stretched(context, cause, options)
        elif cause.kind is CauseKind.QUEUE:
            found += _queue(context, cause, what_if, options)
        elif cause.kind is CauseKind.PREEMPTED:
            found.append(Advice(f"more room for KV: {_more_room(what_if)}", cause.seconds))
        else:
            found += _plain(context, cause)
    least_s = LEAST_SAVED_SHARE * context.account.e2e_s
    chosen = [each for each in found if each.saves_s > least_s or not each.saves_s]
    return sorted(chosen, key=lambda each: -each.saves_s)


def _decode(context: ExplainContext, cause: Cause, what_if: WhatIf | None) -> list[Advice]:
    segments = context.decoding
    if what_if is None or not segments:
        return []
    now = what_if.now
    token_s = cause.seconds / max(1, context.account.num_output_tokens - 1)
    weights = f"{weight_share(now, segments):.0%} of each token is reading weights"
    narrower = _factors(what_if.narrower_weights(), now, segments)
    if narrower:
        found = [_by_factor(weights, f"{{}} weights in place of {what_if.weights}", narrower, cause.seconds, token_s)]
    else:
        found = [Advice(f"{weights}: they are {what_if.weights} already, nothing narrower is on offer", 0.0)]
    cached = f"{kv_share(now, segments):.0%} of each token is the KV cache"
    present = what_if.kv_kind.name.lower()
    narrower = _factors(what_if.narrower_kv(), now, segments)
    if narrower:
        found.append(_by_factor(cached, f"{{}} KV in place of {present}", narrower, cause.seconds, token_s))
    else:
        found.append(Advice(f"{cached}: it is {present} already, nothing narrower is on offer", 0.0))
    alone = _seconds(now, segments) / _seconds(now, segments[:1])
    if alone >= LEAST_FACTOR:
        text = f"{len(segments)} sequences share each step: alone a token would come {alone:.1f}x as fast"
        found.append(Advice(text, cause.seconds * (1 - 1 / alone)))
    return found


def _own_prefill(context: ExplainContext, cause: Cause, what_if: WhatIf | None) -> list[Advice]:
    account = context.account
    found: list[Advice] = []
    if what_if is None:
        return found
    cached, total, step_tokens = account.num_cached_tokens, account.num_prompt_tokens, context.step_tokens
    now_s = prefill_s(what_if.now, cached, total, step_tokens)
    factors = {
        name: now_s / prefill_s(cost, cached, total, step_tokens)
        for name, cost in what_if.narrower_weights().items()
        if now_s
    }
    if factors:
        what = f"{{}} weights in place of {what_if.weights}"
        found.append(_by_factor(_prefill_bound(what_if.now, cached, total, step_tokens), what, factors, cause.seconds))
    half_s = prefill_s(what_if.now, cached, cached + max(1, (total - cached) // 2), step_tokens)
    if half_s and now_s / half_s >= LEAST_FACTOR:
        text = f"a prompt with half as many new tokens would be read {now_s / half_s:.1f}x as fast"
        found.append(Advice(text, cause.seconds * (1 - half_s / now_s)))
    return found


def _prefill_bound(cost: StepCost, cached: int, total: int, step_tokens: int) -> str:
    rows = min(step_tokens, total - cached)
    parts = cost.predict([Segment.prefill(cached, rows, True)]).parts
    if any(part.bound is Bound.ARITHMETIC for part in parts if part.name == "weights"):
        return "prefill is bound by arithmetic"
    return f"prefill of {rows} tokens is bound by memory"


def _stretched(context: ExplainContext, cause: Cause, options: Options) -> list[Advice]:
    """Returns the advice to use smaller chunks: the same prefill then takes more steps, and each gap is stretched by
    less."""
    decoding, shares = context.decoding, context.account.stretches
    if context.cost is None or not decoding or not shares:
        return []
    longest = max(shares, key=lambda share: share.longest_s)
    rows = max(2, longest.num_tokens // longest.num_steps)
    if options.step_rule:
        return [
            Advice(f"chunks of {rows} tokens follow from {options.step_rule}; a shorter --itl makes them smaller", 0.0)
        ]
    fewer = max(LEAST_CHUNK_TOKENS, options.step_tokens // 4)
    if fewer >= rows:
        text = f"chunks of {rows} tokens are small already; a second replica for long prompts would take the whole away"
        return [Advice(text, cause.seconds)]
    gap_s = {count: _seconds(context.cost, [*decoding, Segment.prefill(0, count, False)]) for count in (rows, fewer)}
    ratio = longest.longest_s / max(1e-9, gap_s[rows] - _seconds(context.cost, decoding))
    shorter_s = (gap_s[fewer] - _seconds(context.cost, decoding)) * ratio
    text = (
        f"--max-step-tokens {fewer} in place of {options.step_tokens} would stretch a gap by {duration(shorter_s)} in "
        f"place of {duration(longest.longest_s)}, more gaps than now"
    )
    return [Advice(text, 0.0)]


def _queue(context: ExplainContext, cause: Cause, what_if: WhatIf | None, options: Options) -> list[Advice]:
    hold = context.account.queue.hold
    if hold is Hold.PAGES:
        return [Advice(f"more room for KV: {_more_room(what_if)}", cause.seconds)]
    if hold in (Hold.SEQUENCES, Hold.CALL):
        text = f"--max-sequences above {options.max_sequences} would have let it in at once"
        segments = context.decoding
        if context.cost is not None and segments:
            slower = _seconds(context.cost, [*segments, segments[-1]]) / _seconds(context.cost, segments)
            text += f"; one sequence more makes a step {slower:.2f}x as long"
        return [Advice(text, cause.seconds)]
    if context.account.queue.behind:
        first = context.account.queue.behind[0]
        text = (
            f"a lower priority number, or another replica: prefill of {short(first.request_id)} would not go before it"
        )
        return [Advice(text, min(cause.seconds, first.seconds))]
    return []


def _plain(context: ExplainContext, cause: Cause) -> list[Advice]:
    """Returns fixed advice against a cause, where the cost model cannot compare the present settings with better ones.
    """
    if cause.kind is CauseKind.PREFIX:
        return _prefix(context, cause)
    texts = {
        CauseKind.SHARED_PREFILL: "another replica, or prompts that come one after the other",
        CauseKind.ENCODE: "images that were shown lately: their rows are kept, and cost no second encode",
        CauseKind.COLD: "a first request for warming up: later ones do not pay this",
        CauseKind.CLIENT: "a reader that takes pieces as they come; no setting of the engine helps",
        CauseKind.BUSY: "fewer other programs on this machine, or fewer --threads than it has cores",
        CauseKind.HOST: "at most the host's part, with fewer other programs on this machine",
    }
    return [Advice(texts[cause.kind], cause.seconds)] if cause.kind in texts else []


def _prefix(context: ExplainContext, cause: Cause) -> list[Advice]:
    miss = context.account.prefix_miss
    if miss is None or not miss.lost_tokens:
        return []
    texts = {
        MissReason.DIFFERS: f"put what changes behind what stays: position {miss.position:,} is what differs",
        MissReason.EVICTED: "more --kv-memory, so that the prefix stays cached",
        MissReason.UNFINISHED: f"send it when {short(miss.by or 'the first')} has its first token",
    }
    return [Advice(texts[miss.reason], cause.seconds)] if miss.reason in texts else []


def _more_room(what_if: WhatIf | None) -> str:
    text = "more --kv-memory, fewer --max-sequences"
    if what_if is None:
        return text
    present = what_if.table_of(what_if.weights, what_if.kv_kind).kv_token_bytes
    kinds = [kind for kind in (KVKind.INT8, KVKind.INT4) if kind.name.lower() in what_if.narrower_kv()]
    chosen = [
        f"{kind.name.lower()} holds {present / what_if.table_of(what_if.weights, kind).kv_token_bytes:.1f}x the tokens"
        for kind in kinds
    ]
    return f"{text}, or --kv-format ({', '.join(chosen)})" if chosen else text


def _by_factor(
    now: str, what: str, factors: Mapping[str, float], seconds: float, token_s: float | None = None
) -> Advice:
    """Returns advice such as "62% of ...: int4 weights in place of int8 would give 1.8x, 25 ms -> 14 ms a token".

    now: the beginning of the advice, about the present. what: the change as a phrase, with {} for the name of a choice.
    factors: the speedup of a step with each choice. seconds: the part of the time that a faster step shortens. token_s:
    the seconds of a token at present.
    """
    best = max(factors, key=lambda name: factors[name])
    factor = factors[best]
    if factor < LEAST_FACTOR:
        return Advice(f"{now}: {what.format(' or '.join(factors))} would not help ({factor:.2f}x)", 0.0)
    chosen = [f"{name} {factors[name]:.1f}x" for name in factors if name != best and factors[name] >= LEAST_FACTOR]
    each = "" if token_s is None else f", {duration(token_s)} -> {duration(token_s / factor)} a token"
    also = f" ({', '.join(chosen)})" if chosen else ""
    return Advice(f"{now}: {what.format(best)} would give {factor:.1f}x{each}{also}", seconds * (1 - 1 / factor))


def _factors(costs: Mapping[str, StepCost], now: StepCost, segments: list[Segment]) -> dict[str, float]:
    now_s = _seconds(now, segments)
    return {name: now_s / _seconds(cost, segments) for name, cost in costs.items()}


def _seconds(cost: StepCost, segments: list[Segment]) -> float:
    return max(1e-12, device_seconds(cost.predict(segments)))
