"""Limits the max_tokens of an answer to the room that its prompt leaves in the context.

Agents send one large number with every request, as the most that they would take. It is no demand: when the context
ends earlier, the answer ends there, and the answer's header has a note of it. The engine refuses a prompt that leaves
no room at all.
"""

from __future__ import annotations

from dataclasses import replace

from twostroke.types.notes import Notes
from twostroke.types.sampling.sampling_params import SamplingParams


def within_room(params: SamplingParams, room: int, notes: Notes) -> SamplingParams:
    """Returns the parameters with max_tokens cut to `room`, the number of output tokens that the prompt leaves room
    for. They are not changed where `room` is below 1 or below min_tokens: the engine then refuses the request."""
    asked = params.max_tokens
    if asked is None or asked <= room or room < 1 or params.min_tokens > room:
        return params
    notes.add(f"the limit of {asked} output tokens was cut to the {room} that the context has room for")
    return replace(params, max_tokens=room)
