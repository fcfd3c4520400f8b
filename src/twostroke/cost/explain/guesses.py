"""Describes in words what guessing the next tokens did to a completion."""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.explain.explanation import duration
from twostroke.cost.history.account import Account, GuessCounts
from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.shape import Segment, StepCost


def guesses_text(counts: GuessCounts, cost: StepCost | None, decoding: Sequence[Segment]) -> str:
    """Returns "; 40 of 52 guessed tokens were accepted: about 1.2 s of steps spared, 80 ms for verifying". Returns an
    empty text when nothing was guessed. decoding: the sequences that decoded in one of the completion's steps."""
    if not counts.steps:
        return ""
    text = f"; {counts.accepted:,} of {counts.guessed:,} guessed tokens were accepted"
    if cost is None or not decoding:
        return text
    won_s, lost_s = guess_seconds(counts, cost, decoding)
    return f"{text}: about {duration(won_s)} of steps spared, {duration(lost_s)} for verifying"


def seconds_of_guesses(account: Account, cost: StepCost | None) -> tuple[float, float]:
    """Returns the predicted seconds that accepted guesses spared a completion that has ended, and the seconds that
    verifying took. Both are 0 when nothing was guessed, and without a prediction."""
    if cost is None or not account.guesses.steps or not account.sample:
        return 0.0, 0.0
    return guess_seconds(account.guesses, cost, account.sample)


def guess_seconds(counts: GuessCounts, cost: StepCost, decoding: Sequence[Segment]) -> tuple[float, float]:
    """Returns the predicted seconds that accepted guesses spared, and those that the rows of all guesses took."""
    plain = [each._replace(num_tokens=each.num_tokens - each.drafts, drafts=0) for each in decoding]
    rows = max(1, round(counts.guessed / counts.steps))
    drafted = [plain[0]._replace(num_tokens=plain[0].num_tokens + rows, drafts=rows), *plain[1:]]
    plain_s, drafted_s = device_seconds(cost.predict(plain)), device_seconds(cost.predict(drafted))
    return counts.accepted * plain_s, counts.steps * max(0.0, drafted_s - plain_s)
