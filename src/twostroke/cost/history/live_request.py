"""A completion that has not ended, as the live view shows it."""

from __future__ import annotations

from msgspec import Struct

from twostroke.cost.history.account import LiveAccount, Phase


class LiveRequest(Struct, frozen=True):
    """A completion that has not ended, at one moment. num_computed: the positions of the prompt that are in the KV
    cache; num_cached of them were found there. num_ahead: the completions that waited when this one came. Times are
    seconds of the engine's clock. first_s: when it was planned for the first time."""

    request_id: str
    phase: Phase
    arrival_s: float
    first_s: float | None
    token_s: float | None
    num_prompt_tokens: int
    num_computed: int
    num_cached: int
    num_ahead: int


def live_request(live: LiveAccount) -> LiveRequest:
    """The request's state at this moment. It may be called while the engine goes on."""
    prompt = len(live.request.prompt_token_ids)
    filling = live.token_s is None
    return LiveRequest(
        live.request.request_id,
        live.phase,
        live.request.arrival_s,
        live.first_s,
        live.token_s,
        prompt,
        min(prompt, live.computed) if filling else prompt,
        live.cached,
        live.num_ahead,
    )
