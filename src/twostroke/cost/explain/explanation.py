"""The explanation of one completion: a verdict, the causes in order, and the advice against them."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from twostroke.cost.history.account import Share

_OF_REPLICA = re.compile(r"@\d+\.\d+$")


class Verdict(enum.StrEnum):
    """On which side of the first token a completion's avoidable time lies: before it (START) or after it (STREAM)."""

    START = "slow to start"
    STREAM = "slow to stream"


class CauseKind(enum.StrEnum):
    """What the time of a completion was spent on. ENCODE, OWN_PREFILL and DECODE are the work itself; the others could
    be avoided, such as QUEUE.

    FRONT, TRANSFER, RESUME and LOST exist only for requests to a front with replicas.
    """

    QUEUE = "queue"
    DISK = "read from disk"
    SHARED_PREFILL = "others' prefill"
    PREFIX = "prefix missed"
    COLD = "cold start"
    ENCODE = "encode"
    OWN_PREFILL = "own prefill"
    STRETCHED = "stretched gaps"
    PREEMPTED = "preemption"
    CLIENT = "client stall"
    HOST = "host gap"
    BUSY = "busy processor"
    DECODE = "decode"
    FRONT = "in the front"
    TRANSFER = "transfer"
    RESUME = "resume"
    LOST = "lost replica"

    @property
    def is_work(self) -> bool:
        """Whether this kind of time is needed to answer a request. Other kinds could be avoided."""
        return self in (CauseKind.ENCODE, CauseKind.OWN_PREFILL, CauseKind.DECODE)


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause of a completion's end-to-end time. seconds: its part of this time; no second counts for two causes.
    text: a sentence for people. who: the ids of the completions that `text` names."""

    kind: CauseKind
    side: Verdict
    seconds: float
    text: str
    who: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help. saves_s: the seconds of the end-to-end time that it would save, as the cost model predicts; 0
    where it would not help.
    """

    text: str
    saves_s: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of one completion. causes: the cause with the most seconds is first. advice: the advice that
    saves most is first. source: where the cost model's figures come from.

    num_disk_tokens: the cached tokens of the prompt that were read from the disk.
    """

    request_id: str
    verdict: Verdict
    summary: str
    e2e_s: float
    ttft_s: float | None
    mean_itl_s: float | None
    num_prompt_tokens: int
    num_cached_tokens: int
    num_output_tokens: int
    parts_s: dict[str, float]
    causes: tuple[Cause, ...]
    advice: tuple[Advice, ...]
    source: str
    num_disk_tokens: int = 0

    def as_json(self) -> dict[str, Any]:
        """The explanation as plain JSON values."""
        return asdict(self)


def words(explanation: Explanation) -> str:
    """The explanation as several lines for people."""
    whole = explanation
    lines = [f"{short(whole.request_id)}: {whole.verdict}. {whole.summary}"]
    times = [f"{duration(whole.e2e_s)} in all"]
    times += [f"TTFT {duration(whole.ttft_s)}"] if whole.ttft_s is not None else []
    times += [f"{duration(whole.mean_itl_s)} a token"] if whole.mean_itl_s is not None else []
    cached = f"{whole.num_cached_tokens:,} cached"
    cached += f", {whole.num_disk_tokens:,} of them read from the disk" if whole.num_disk_tokens else ""
    counts = f"{whole.num_prompt_tokens:,} prompt tokens ({cached})"
    lines.append(f"{', '.join(times)}; {counts}, {whole.num_output_tokens:,} output tokens")
    lines.append("where the time went")
    for cause in whole.causes:
        share = cause.seconds / whole.e2e_s if whole.e2e_s else 0.0
        lines.append(f"  {duration(cause.seconds):>8} {share:>4.0%}  {cause.kind}: {cause.text}")
    if whole.advice:
        lines.append("what would help")
        for each in whole.advice:
            lines.append(f"  {'-' + duration(each.saves_s) if each.saves_s else '':>9}       {each.text}")
    lines.append(f"figures of the cost model: {whole.source}")
    return "\n".join(lines)


def duration(seconds: float) -> str:
    """Returns a text such as "1.24 s", "840 ms", "2.3 ms" or "0.05 ms"."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    milliseconds = seconds * 1e3
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.{1 if milliseconds >= 1 else 2}f} ms"


def replica_name(request_id: str, link_id: int, number: int) -> str:
    """Returns the name that a replica gives to the stream that one of its fronts calls `request_id`. No two streams
    have one name."""
    return f"{request_id}@{link_id}.{number}"


def front_name(name: str) -> str:
    """Returns the front's name of a stream from a replica's name of it: "a@3.7" becomes "a". Returns other names as
    they are."""
    return _OF_REPLICA.sub("", name)


def short(request_id: str) -> str:
    """Returns a completion's name as clients know it. The index is left out when the request has one completion only.
    """
    return front_name(request_id).removesuffix("/0")


def names(found: Sequence[Share], most: int = 3) -> str:
    """Returns a text such as "a (7,900 tokens, 610 ms), b (...) and 4 more". most: the most shares that are named."""
    items = [f"{short(s.request_id)} ({_work_of(s)}, {duration(s.seconds)})" for s in found[:most]]
    return _listed(items, len(found) - most)


def _work_of(share: Share) -> str:
    """Returns "7,900 tokens", or "an image" when no tokens were computed for this completion."""
    return f"{share.num_tokens:,} tokens" if share.num_tokens else "an image"


def plain_names(found: Sequence[str], most: int = 3) -> str:
    """Returns a text such as "a, b and 4 more". most: the most names in it."""
    return _listed([short(name) for name in found[:most]], len(found) - most)


def _listed(items: Sequence[str], more: int) -> str:
    if more > 0:
        return f"{', '.join(items)} and {more} more"
    return " and ".join([", ".join(items[:-1]), items[-1]] if len(items) > 1 else items)
