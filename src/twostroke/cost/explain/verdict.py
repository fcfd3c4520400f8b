"""Explains one completion, from its account and the cost model: whether it was slow to start or slow to stream, why,
and what would help.

explainer = Explainer(ledger, what_if, options)
for explanation in explainer.explain("chatcmpl-7"): print(words(explanation))
"""

from __future__ import annotations

from collections.abc import Sequence

from twostroke.cost.explain.advice import Options, advice_for
from twostroke.cost.explain.causes import ExplainContext, causes_of
from twostroke.cost.explain.explanation import Advice, Cause, Explanation, Verdict, duration
from twostroke.cost.history.account import Account
from twostroke.cost.history.ledger import Ledger
from twostroke.cost.history.steps_seen import Cold, StepsSeen
from twostroke.cost.shape import StepCost
from twostroke.cost.what_if import WhatIf

AVOIDABLE_SHARE = 0.1
"""When a smaller share of the time could be avoided, the verdict names the longer phase: the time before or after the
first token."""


class Explainer:
    """Explains on what the time of a completion was spent, and what would shorten it. Any thread may call it. ledger:
    has the accounts of completions. what_if: predicts with other settings; None where the machine's costs are unknown.
    """

    def __init__(self, ledger: Ledger, what_if: WhatIf | None, options: Options) -> None:
        self.ledger = ledger
        self._what_if = what_if
        self._options = options

    def explain(self, name: str) -> list[Explanation]:
        """Explanations of a completion, or of each completion of a request; none for an unknown id."""
        return [self.explanation(account) for account in self.ledger.accounts.find(name)]

    def explanation(self, account: Account) -> Explanation:
        """The explanation of one account."""
        cost = self.ledger.cost
        cold = Cold() if cost is None else self._cold(account, cost)
        measured = self._what_if is not None and self._what_if.measured
        context = ExplainContext(account, cost, cold, self._options.step_tokens, measured)
        causes = causes_of(context)
        advice = advice_for(context, causes, self._what_if, self._options)
        source = "none" if self._what_if is None else self._what_if.source
        return explanation_of(account, account.parts.by_name(), causes, advice, source)

    def _cold(self, account: Account, cost: StepCost) -> Cold:
        if account.first_scheduled_s is None:
            return Cold()
        otherwise = 1.0 if self._what_if is not None and self._what_if.measured else None
        seen = StepsSeen.of(self.ledger.history, cost, otherwise)
        return seen.cold(self.ledger.history, cost, account.first_ordinal)


def explanation_of(
    account: Account,
    parts_s: dict[str, float],
    causes: list[Cause],
    advice: Sequence[Advice],
    source: str,
    where: str = "",
) -> Explanation:
    """Puts an explanation together. parts_s: the seconds of each part of the time, by name. causes: the cause with the
    most seconds is first. source: where the cost model's figures come from. where: a sentence that is appended to the
    summary."""
    verdict, outputs = _verdict(account, causes), account.num_output_tokens
    return Explanation(
        request_id=account.request_id,
        verdict=verdict,
        summary=_summary(account, causes, verdict) + where,
        e2e_s=account.e2e_s,
        ttft_s=account.ttft_s,
        mean_itl_s=account.stream_s / (outputs - 1) if outputs > 1 and account.ttft_s is not None else None,
        num_prompt_tokens=account.num_prompt_tokens,
        num_cached_tokens=account.num_cached_tokens,
        num_output_tokens=outputs,
        parts_s=parts_s,
        causes=tuple(causes),
        advice=tuple(advice),
        source=source,
        num_disk_tokens=min(account.disk.tokens, account.num_cached_tokens),
    )


def _verdict(account: Account, causes: list[Cause]) -> Verdict:
    """Returns START or STREAM: whether more avoidable time was lost before or after the first token."""
    avoidable = {side: _avoidable(causes, side) for side in Verdict}
    if max(avoidable.values()) >= AVOIDABLE_SHARE * account.e2e_s:
        return max(avoidable, key=lambda side: avoidable[side])
    return Verdict.START if account.e2e_s - account.stream_s >= account.stream_s else Verdict.STREAM


def _avoidable(causes: list[Cause], side: Verdict) -> float:
    return sum(cause.seconds for cause in causes if cause.side is side and not cause.kind.is_work)


def _summary(account: Account, causes: list[Cause], verdict: Verdict) -> str:
    """Returns the explanation in one sentence: the time up to the first token or after it, as the verdict asks, and
    the largest cause of that time. causes: sorted by their seconds, the largest first."""
    if account.ttft_s is None:
        return f"It ended ({account.reason.value}) after {duration(account.e2e_s)} without a token."
    of_side = [cause for cause in causes if cause.side is verdict]
    if verdict is Verdict.START:
        sentence = f"{duration(account.ttft_s)} of {duration(account.e2e_s)} passed before the first token"
    else:
        sentence = f"{duration(account.stream_s)} of {duration(account.e2e_s)} passed after the first token"
    if not of_side:
        return f"{sentence}."
    first = of_side[0]
    return f"{sentence}, {duration(first.seconds)} of it: {first.kind}."
