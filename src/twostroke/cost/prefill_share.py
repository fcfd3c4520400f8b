"""Divides a step's time among the completions that it worked for: chunks of prompts, image rows that go through the
model in pieces, and the encode of an image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from msgspec import Struct

from twostroke.cost.history.step_history import Row, device_seconds
from twostroke.cost.shape import Segment, StepCost
from twostroke.types.plan import Plan, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult


class HasRequest(Protocol):
    """An object with a request, such as the account of a completion."""

    @property
    def request(self) -> Request:
        """The request that this object belongs to."""


class Encode(Struct, frozen=True):
    """The work of one step on encoding an image. request_id: the completion for which this work counts. pieces: the
    number of pieces that were computed. seconds: their time."""

    request_id: str = ""
    seconds: float = 0.0
    pieces: int = 0


NO_ENCODE = Encode()


def prefill_share(segments: Sequence[Segment], cost: StepCost | None) -> float:
    """Returns the prefill's share of model and sampling, from 0 to 1: how much longer the step
    is predicted to take than a step with its decoding sequences alone.

    Without a cost model it is the prefill's share of the rows.
    """
    decoding = [segment for segment in segments if segment.role is Role.DECODE]
    if len(decoding) == len(segments):
        return 0.0
    if not decoding:
        return 1.0
    if cost is None:
        return 1 - sum(segment.num_tokens for segment in decoding) / sum(segment.num_tokens for segment in segments)
    whole_s = device_seconds(cost.predict(segments))
    return 1 - min(1.0, device_seconds(cost.predict(decoding)) / whole_s) if whole_s else 1.0


def chunk_seconds(rows: Sequence[Row], busy_s: float, cost: StepCost | None) -> dict[str, float]:
    """Returns the seconds that each chunk adds to a step of these rows, by request id. The chunks of a step share its
    prefill time in proportion to their rows."""
    chunks = [row for row in rows if row.role is Role.PREFILL]
    if not chunks:
        return {}
    added = busy_s * prefill_share([row.segment() for row in rows], cost)
    chunk_rows = sum(row.num_tokens for row in chunks)
    return {row.request_id: added * row.num_tokens / chunk_rows for row in chunks}


def seconds_by_chunk(
    plan: Plan, result: StepResult, rows: Sequence[Row], busy_s: float, cost: StepCost | None
) -> dict[str, float]:
    """Returns the seconds that each chunk of a prompt adds to a step, by request id. The image rows that the step
    computes in pieces count as a chunk too. rows: a Row for each sequence of the plan, and last one for
    the image rows."""
    if plan.span is None:
        return chunk_seconds(rows, busy_s, cost)
    span_s = min(result.span_s, busy_s)
    return {**chunk_seconds(rows[:-1], busy_s - span_s, cost), plan.span.request_id: span_s}


def tokens_of(plan: Plan, row: Row) -> int:
    """Returns how many prompt tokens a sequence counts as computed by a step. Image rows that are computed in pieces
    count only in the step with the last piece."""
    own = plan.unfinished
    return 0 if own is not None and own.request.request_id == row.request_id else row.num_tokens


def encode_of(plan: Plan, result: StepResult, busy_s: float, live: Mapping[str, HasRequest]) -> Encode:
    """Returns the time that a step took to encode an image. This time counts for the first completion whose prompt
    contains the image. live: all completions, in order of arrival."""
    if not result.encode_s:
        return NO_ENCODE
    keys = set(result.encodes.keys) | ({plan.encode.key} if plan.encode is not None else set())
    for request_id, each in live.items():
        if any(span.tile.key in keys for span in each.request.images):
            return Encode(request_id, min(result.encode_s, busy_s), result.encodes.pieces)
    return NO_ENCODE
