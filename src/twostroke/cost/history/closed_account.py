"""Makes the account of a completion that has ended."""

from __future__ import annotations

from twostroke.cost.history.account import Account, LiveAccount, chunks_since
from twostroke.cost.history.step_history import StepHistory
from twostroke.cost.history.waits import Waits
from twostroke.types.event import FinishedEvent


def closed_account(
    live: LiveAccount, event: FinishedEvent, waits: Waits, history: StepHistory, num_steps: int, delayed_s: float
) -> Account:
    """Returns the account of a completion that ends with this event. num_steps: the number of steps so far. delayed_s:
    the seconds of all steps so far in which the processor was busy with something else."""
    request, first_s, token_s = live.request, live.first_s, live.token_s
    steps = [] if first_s is None or not live.others_s else chunks_since(waits.chunk_steps, first_s)
    steps = [step for step in steps if not live.was_away(step[1])]
    middle = (live.token_ordinal + num_steps + 1) // 2
    return Account(
        request_id=request.request_id,
        group_id=request.group_id,
        reason=event.reason,
        arrival_s=request.arrival_s,
        first_scheduled_s=first_s,
        first_token_s=token_s,
        finished_s=event.at_s,
        num_prompt_tokens=len(request.prompt_token_ids),
        # The end token takes a step, but is no token of the output. Resumed tokens took no step here.
        num_output_tokens=event.num_output_tokens + (event.stopped_by is not None) - len(request.resumed_token_ids),
        num_cached_tokens=event.num_cached_tokens,
        priority=request.priority,
        parts=live.parts(),
        start=live.start,
        queue=live.queue,
        start_shares=live.shares([s for s in steps if token_s is None or s[2] <= token_s]),
        stretches=live.shares([s for s in steps if token_s is not None and s[2] > token_s]),
        spells=tuple(live.spells),
        prefix_miss=event.prefix_miss,
        first_ordinal=live.first_ordinal,
        sample=() if token_s is None else history.decoded_in(middle),
        delays=live.delays(delayed_s),
        guesses=live.guesses,
        stays=tuple(live.stays),
        disk=live.disk,
        image_tokens=sum(span.end - span.first for span in request.images),
        encodes=live.encodes,
    )
