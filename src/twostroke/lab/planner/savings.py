"""Changes that would make a model faster or smaller, and by how much: narrower weights and K and V, speculation, pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from twostroke.cost.disk_price import DiskPrice
from twostroke.cost.explain.explanation import duration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.lab.planner.ask import Ask
from twostroke.lab.planner.ceilings import (
    bandwidth_for_bytes_per_s,
    page_waste_share,
    reserved_waste_share,
    speculative_gain,
)
from twostroke.lab.planner.target import Target
from twostroke.models.common.work import work_of
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import WHOLE_NAMES
from twostroke.types.errors import ConfigError
from twostroke.types.plan import Role
from twostroke.types.spec.formats import PAGE_TOKENS

NARROWER = {
    "f32": ("bf16", "int8", "int4"),
    "bf16": ("int8", "int4"),
    **{name: ("int4",) for name in WHOLE_NAMES if name != "int4"},
}
ACCEPTANCE, DRAFT_TOKENS, DRAFT_SHARE = 0.8, 4, 0.05
"""The assumptions for speculation: the share of guesses that are accepted, the length of a guess, and the draft model's
size as a share of the model's."""


@dataclass(frozen=True, slots=True)
class Saving:
    """A change that saves time or memory. gain: how many times faster one stream decodes; 1 where the change saves only
    memory."""

    name: str
    gain: float
    words: str


def savings(spec: Model, ask: Ask, target: Target) -> tuple[Saving, ...]:
    """Returns changes that would make the model faster or smaller, with their gains: narrower weights, narrower K and
    V, speculation, pages, a disk. Each is compared alone with the plan as it is."""
    found = [*_narrower_weights(spec, ask, target), *_narrower_kv(spec, ask, target), _speculation(spec, ask, target)]
    return (*found, _pages(spec, ask), _disk(spec, ask, target)) if spec.paged_kinds else tuple(found)


def needed_read_words(spec: Model, ask: Ask) -> str | None:
    """Returns a sentence about the least bandwidth that the ITL objective needs; None without an ITL objective."""
    if ask.itl_s is None:
        return None
    token_bytes = _token_bytes(spec, ask)
    needed = bandwidth_for_bytes_per_s(1 / ask.itl_s, token_bytes)
    return (
        f"{1 / ask.itl_s:,.3g} tokens a second to one stream take {needed / 1e9:,.4g} GB/s at the least: "
        f"{token_bytes / 1e9:.3g} GB are read for each token"
    )


def _token_bytes(spec: Model, ask: Ask) -> int:
    """Returns the bytes that a token moves: weights, K and V in the middle of an answer, and states, which are read and
    written."""
    return spec.weight_bytes(ask.format_for) + _kv_bytes(spec, ask) + 2 * spec.state_bytes()


def _kv_bytes(spec: Model, ask: Ask) -> int:
    """Returns the bytes of K and V that a token in the middle of an answer reads."""
    return spec.kv_bytes_seen(ask.kv_kind, ask.prompt_tokens + ask.output_tokens // 2)


def _decode_s(spec: Model, ask: Ask, target: Target, rows: int = 1) -> float:
    """Returns the seconds of a step with `rows` new positions of one stream. Raises ConfigError for a format not
    measured."""
    cost = step_cost(work_of(spec, ask.weights, ask.kv_kind), target.machine)
    position = ask.prompt_tokens + ask.output_tokens // 2
    return cost.predict([Segment(position, rows, True, Role.DECODE, adapter=ask.one_adapter)]).seconds


def _narrower_weights(spec: Model, ask: Ask, target: Target) -> Iterator[Saving]:
    now_s, now_bytes = _decode_s(spec, ask, target), spec.weight_bytes(ask.format_for)
    for weights in NARROWER.get(ask.weights, ()):  # a file's own weights have no entry
        narrow = replace(ask, weights=weights)
        try:
            gain = now_s / _decode_s(spec, narrow, target)
        except ConfigError:
            continue  # not measured on this target, so no gain is known
        share = spec.weight_bytes(narrow.format_for) / now_bytes
        yield Saving(f"weights {weights}", gain, f"{weights} weights: {share:.0%} of the bytes, {_times(gain)}")


def _narrower_kv(spec: Model, ask: Ask, target: Target) -> Iterator[Saving]:
    if ask.kv_kind.is_integer or not spec.paged_kinds:
        return
    narrow = replace(ask, kv_format="int8", key_factors="")
    share = _kv_bytes(spec, ask) / _token_bytes(spec, ask)
    try:
        gain = _decode_s(spec, ask, target) / _decode_s(spec, narrow, target)
    except ConfigError:
        return
    states = spec.state_bytes()
    room = (_kv_bytes(spec, ask) + states) / (_kv_bytes(spec, narrow) + states)
    words = f"K and V in int8: {share:.0%} of what a token reads; {_times(gain)}, {room:.2g} times the sequences fit"
    yield Saving("kv int8", gain, words)


def _speculation(spec: Model, ask: Ask, target: Target) -> Saving:
    check = _decode_s(spec, ask, target, 1 + DRAFT_TOKENS) / _decode_s(spec, ask, target)
    gain = speculative_gain(ACCEPTANCE, DRAFT_TOKENS, DRAFT_SHARE, check)
    words = (
        f"a draft of {DRAFT_TOKENS} tokens, each right {ACCEPTANCE:.0%} of the time and {DRAFT_SHARE:.0%} of a step: "
        f"{_times(gain)}; a step that checks them takes {check:.2f} times a plain one, and more streams gain less"
    )
    return Saving("speculation", gain, words)


def _pages(spec: Model, ask: Ask) -> Saving:
    mean = ask.prompt_tokens + ask.output_tokens / 2
    paged, reserved = page_waste_share(PAGE_TOKENS, mean), reserved_waste_share(ask.context_tokens, mean)
    words = (
        f"pages of {PAGE_TOKENS} positions, as planned, leave {paged:.1%} of the K and V memory unused; one block of "
        f"{ask.context_tokens:,} positions for each sequence would leave {reserved:.0%}, of the model's "
        f"{spec.max_positions:,} {reserved_waste_share(spec.max_positions, mean):.0%}"
    )
    return Saving("pages", 1.0, words)


def _disk(spec: Model, ask: Ask, target: Target) -> Saving:
    """Returns what a KV disk saves when a prompt comes again and its pages are no longer in memory: the seconds of
    reading the pages from the disk, and those of computing the prompt."""
    price = DiskPrice(step_cost(work_of(spec, ask.weights, ask.kv_kind), target.machine), target.step_tokens)
    num_bytes = spec.kv_bytes_seen(ask.kv_kind, ask.prompt_tokens) + spec.state_bytes()
    reading_s, computing_s = price.reading_s(num_bytes), price.computing_s(0, ask.prompt_tokens)
    words = (
        f"`serve --kv-disk`: {ask.prompt_tokens:,} tokens of a prompt that was sent before, {num_bytes / 1e6:,.1f} MB, "
        f"are read from a disk in {duration(reading_s)} at {price.rate / 1e6:,.0f} MB/s, and computed in "
        f"{duration(computing_s)}; the rate is an assumption, and a server measures its own"
    )
    return Saving("kv-disk", 1.0, words)


def _times(gain: float) -> str:
    return f"one stream decodes {gain:.2f} times as fast"
