"""Explains why a request to a front (the HTTP server before the replicas) took as long as it did. It joins the
explanations of all replicas that had the request, and adds the time that the request spent in the front.

A stay is the time that a request spends at one replica, by the front's clock. The replica's account divides this time
into parts; the rest of the stay is transfer. The time outside of all stays was spent in the front. So the parts add up
to the whole time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from twostroke.cost.explain.causes import ALWAYS_LISTED, LEAST_SHARE
from twostroke.cost.explain.explanation import Advice, Cause, CauseKind, Explanation, Verdict, front_name
from twostroke.cost.explain.verdict import explanation_of
from twostroke.cost.history.account import Account
from twostroke.cost.history.stay import ReplicaStay, StayEnd
from twostroke.types.recorded.parts import TimeParts

FRONT_PARTS = ("front_s", "transfer_s", "resume_s", "lost_s")
"""The parts of the time that only a request to a front has.

front_s: seconds in the front, while no replica had the request. transfer_s: seconds on the way, and before a replica's
own queue. resume_s: seconds of computing again after a replica was lost. lost_s: seconds at replicas whose records are
gone.
"""

Record = Explanation | str
"""A replica's explanation of the time that a request spent there, or a text that tells why there is none."""


def explained(account: Account, records: Sequence[Record]) -> Explanation:
    """Returns one explanation of a request, made from those of the replicas that had it. records: one for each time at
    a replica, in order; the text of a record is empty where the replica refused the request."""
    story, stays = _Story(account), account.stays
    for index, (stay, record) in enumerate(zip(stays, records, strict=True)):
        lost = stays[index - 1] if index and stays[index - 1].end is StayEnd.LOST else None
        story.add(stay, record, lost, several=len(stays) > 1)
    return story.told([stay.member for stay in stays], [each for each in records if isinstance(each, Explanation)])


class _Story:
    """What was found so far about the time of one request: its parts by name, the causes and the advice."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self.parts = dict.fromkeys((*TimeParts().by_name(), *FRONT_PARTS), 0.0)
        self.causes: list[Cause] = []
        self.advice: list[Advice] = []
        late_s = self.parts["client_stall_s"] = account.parts.client_stall_s
        self._add(CauseKind.CLIENT, Verdict.STREAM, late_s, "its reader did not take the pieces that lay ready")
        self._left_s = account.e2e_s - late_s
        self._until_s, self._between_s = account.arrival_s, 0.0  # _between_s: the part of _left_s after the first token

    def add(self, stay: ReplicaStay, record: Record, lost: ReplicaStay | None, several: bool) -> None:
        """Adds the time that the request spent at one replica, `stay`. record: the replica's explanation. lost: the
        stay before this one where its replica was lost, else None. several: whether there are other stays, so that
        texts name the replica."""
        self._left_s -= stay.seconds
        self._between_s += stay.since_s - self._until_s if stay.num_told else 0.0
        self._until_s = stay.until_s
        side = self._side(stay)
        if isinstance(record, str):
            refused = stay.end is StayEnd.REFUSED
            kind = CauseKind.TRANSFER if refused else CauseKind.LOST
            self.parts["transfer_s" if refused else "lost_s"] += stay.seconds
            self._add(kind, side, stay.seconds, f"{stay.member} refused it" if refused else record)
            return
        parts, excess_s = _fitted(record.parts_s, stay.seconds)
        transfer_s = stay.seconds - sum(parts.values())
        causes = _shortened(record.causes, excess_s)
        if lost is not None:
            parts["resume_s"] = parts.pop("own_prefill_s", 0.0)
            causes = [_again(cause, stay, lost) for cause in causes]
        for name, seconds in parts.items():
            self.parts[name] = self.parts.get(name, 0.0) + seconds
        self.parts["transfer_s"] += transfer_s
        text = f"to {stay.member} and back, and what comes before its queue there: pages of another one, a grammar"
        self._add(CauseKind.TRANSFER, side, transfer_s, text)
        prefix = f"{stay.member}: " if several else ""
        for cause in causes:
            self._add(
                cause.kind,
                Verdict.STREAM if stay.num_told else cause.side,
                cause.seconds,
                prefix + cause.text,
                tuple(front_name(name) for name in cause.who),
            )
        self.advice += [replace(each, text=prefix + each.text) for each in record.advice]

    def told(self, members: Sequence[str], records: Sequence[Explanation]) -> Explanation:
        """Adds the front's own time, and returns the explanation of the whole request. members: the names of the
        replicas that had it. records: their explanations."""
        account, self.parts["front_s"] = self._account, self._left_s
        side = Verdict.STREAM if self._between_s > self._left_s / 2 else Verdict.START
        self._add(CauseKind.FRONT, side, self._left_s, "until it was sent to a replica, and between replicas")
        least_s = LEAST_SHARE * account.e2e_s
        causes = [cause for cause in self.causes if cause.seconds > least_s or cause.kind in ALWAYS_LISTED]
        causes.sort(key=lambda cause: -cause.seconds)
        advice = sorted(self.advice, key=lambda each: -each.saves_s)
        where = f" Computed at {', then at '.join(members)}." if members else " No replica had it."
        source = records[0].source if records else "none"
        return explanation_of(account, self.parts, causes, advice, source, where)

    def _add(self, kind: CauseKind, side: Verdict, seconds: float, text: str, who: tuple[str, ...] = ()) -> None:
        self.causes.append(Cause(kind, side, seconds, text, who))

    def _side(self, stay: ReplicaStay) -> Verdict:
        """Returns START where the middle of the stay was before the request's first token, so that its causes count as
        a slow start; else STREAM."""
        token_s = self._account.first_token_s
        middle_s = (stay.since_s + stay.until_s) / 2
        return Verdict.START if token_s is None or middle_s <= token_s else Verdict.STREAM


def _fitted(parts_s: Mapping[str, float], seconds: float) -> tuple[dict[str, float], float]:
    """Returns a replica's parts of the time, cut to `seconds` in all, and the seconds that were cut off. seconds: how
    long the request was at the replica, by the front's clock. The last parts are cut first. The parts may be too long,
    because a replica counts until it hears that the stream has left."""
    excess_s = left_s = max(0.0, sum(parts_s.values()) - seconds)
    parts = dict(parts_s)
    for name in reversed(parts):
        taken_s = min(left_s, parts[name])
        parts[name] -= taken_s
        left_s -= taken_s
    return parts, excess_s


def _shortened(causes: Sequence[Cause], seconds: float) -> list[Cause]:
    """Returns the causes with `seconds` in all taken off, because the replica's time was cut. Causes after the first
    token are shortened first."""
    found = []
    for cause in sorted(causes, key=lambda each: each.side is not Verdict.STREAM):
        taken_s = min(seconds, cause.seconds)
        seconds -= taken_s
        found.append(replace(cause, seconds=cause.seconds - taken_s))
    return found


def _again(cause: Cause, stay: ReplicaStay, lost: ReplicaStay) -> Cause:
    """Returns a cause at the replica that took over a request from a lost one. Its own prefill becomes the cause
    RESUME, because the prompt was computed a second time. Other causes stay the same. lost: the time at the lost
    replica."""
    if cause.kind is not CauseKind.OWN_PREFILL:
        return cause
    told = f" and {stay.num_told:,} tokens of its answer" if stay.num_told else ""
    text = f"its prompt{told} were computed again, because {lost.member} was lost"
    return replace(cause, kind=CauseKind.RESUME, text=text)
