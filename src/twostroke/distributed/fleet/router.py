"""Chooses the replica that computes a request: the one where it costs the fewest predicted seconds.

The cost is the seconds until the first token, plus the seconds for which the prompt delays the streams that the replica
decodes. The seconds until the first token include prompts that are not computed yet, from the replica's reports or from
what was sent to it. They also include this prompt, without the tokens that the replica has cached. Cached tokens are
known from the prompts that were sent to the replica before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from twostroke.distributed.wire.frames import PageSource, ReplicaLoad, ReplicaRole

REMEMBERED_PAGES = 262_144
SAME_SHARE = 0.05
"""Predictions that differ by less than this share count as equal. Then the longer cached prefix decides."""
FULL_S = 60.0
"""The seconds that are added to the cost of a replica whose batch is full, so that it is chosen last."""


@dataclass(eq=False, slots=True)
class FleetMember:
    """A replica as the front sees it; the front is the server process that gives requests to replicas. sent_tokens: the
    tokens of prompts that were sent to it and that it has not started. streams: the number of streams that it computes
    for this front. output_tokens: the tokens that came from it.

    sent_encode_s: the predicted seconds of the encodes that were sent to it and whose streams have not started.
    instance, role, page_bytes, image_row_s, image_row_bytes: see ReplicaFacts. heard_s: the time of its last frame.
    where: the address at which other replicas reach it.
    """

    name: str
    instance: str
    max_sequences: int
    load: ReplicaLoad = field(default_factory=ReplicaLoad)
    sent_tokens: int = 0
    streams: int = 0
    output_tokens: int = 0
    page_bytes: int = 0
    image_row_s: float = 0.0
    image_row_bytes: int = 0
    sent_encode_s: float = 0.0
    heard_s: float = 0.0
    draining: bool = False
    suspect: bool = False
    role: ReplicaRole = "both"
    where: PageSource = PageSource("", "", 0)


@dataclass(frozen=True, slots=True)
class Placing:
    """A request for which a replica is to be chosen. keys: one key for each whole page of its tokens, made from all
    tokens up to that page's end."""

    num_tokens: int
    keys: tuple[int, ...]
    page_tokens: int


class LeastSeconds:
    """Chooses the replica of a request, and remembers which prompts went to which replica. `members` are never empty.
    """

    def __init__(self) -> None:
        self._places: OrderedDict[int, set[str]] = OrderedDict()

    def rank(self, asked: Placing, members: Sequence[FleetMember]) -> FleetMember:
        """Returns the member with the least cost for the request; among almost equal ones, the one that has most of its
        prompt cached. Call `remember` if that member is to compute the request."""
        found = [(self.cost_s(asked, member), member) for member in members]
        near_s = min(seconds for seconds, _ in found) * (1 + SAME_SHARE) + 1e-9
        near = [member for seconds, member in found if seconds <= near_s]
        return max(near, key=lambda member: (self.cached_tokens(asked, member), -member.streams))

    def cost_s(self, asked: Placing, member: FleetMember) -> float:
        """Returns the cost of the request on that member: the seconds until its first token (`first_s`). Where the
        member decodes other streams, the seconds of computing this prompt are added once, whatever their number.

        So an idle member is preferred to a busy one whose predictions happen to be a little lower.
        """
        return self.first_s(asked, member) + (self.own_s(asked, member) if _decodes(member) else 0.0)

    def first_s(self, asked: Placing, member: FleetMember) -> float:
        """Returns the predicted seconds until the first token of this request on that member: the prompts before it,
        its own prompt, and a step where one runs."""
        load = member.load
        before = max(load.prefill_tokens, member.sent_tokens)
        full = FULL_S if max(load.running + load.waiting, member.streams) >= member.max_sequences else 0.0
        step_s = load.step_s if _decodes(member) or before else 0.0
        return full + before * load.token_s + self.own_s(asked, member) + step_s

    def own_s(self, asked: Placing, member: FleetMember) -> float:
        """Returns the seconds in which the member computes the request's own prompt; they are a part of `first_s`."""
        return max(1, asked.num_tokens - self.cached_tokens(asked, member)) * member.load.token_s

    def forget(self, member: FleetMember) -> None:
        """Forget a member that was lost with its pages."""
        for names in self._places.values():
            names.discard(member.name)

    def cached_tokens(self, asked: Placing, member: FleetMember) -> int:
        """Returns how many of the prompt's tokens the member probably has cached, by the prompts that were sent to it.
        """
        pages = 0
        for key in asked.keys:
            if member.name not in self._places.get(key, ()):
                break
            pages += 1
        return pages * asked.page_tokens

    def remember(self, asked: Placing, member: FleetMember) -> None:
        """Remember that the member will have the prompt's pages."""
        for key in asked.keys:
            self._places.setdefault(key, set()).add(member.name)
            self._places.move_to_end(key)
        while len(self._places) > REMEMBERED_PAGES:
            self._places.popitem(last=False)


def _decodes(member: FleetMember) -> bool:
    return member.load.running > 0 or member.streams > 0


def prefix_keys(salt: str, token_ids: Sequence[int], page_tokens: int) -> tuple[int, ...]:
    """Returns a key for each whole page of a prompt. Equal keys mean equal beginnings, except for collisions. A
    collision costs a worse choice, never another answer."""
    keys: list[int] = []
    key = hash(salt)
    for start in range(0, len(token_ids) - page_tokens + 1, page_tokens):
        key = hash((key, tuple(token_ids[start : start + page_tokens])))
        keys.append(key)
    return tuple(keys)
