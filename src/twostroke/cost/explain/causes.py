"""The causes of a completion's time, each with its seconds and a sentence."""

from __future__ import annotations

from dataclasses import dataclass

from twostroke.cost.explain.explanation import Cause, CauseKind, Verdict, duration, names, plain_names, short
from twostroke.cost.explain.guesses import guesses_text
from twostroke.cost.history.account import Account, QueueStory
from twostroke.cost.history.step_history import device_seconds
from twostroke.cost.history.steps_seen import Cold
from twostroke.cost.shape import Segment, StepCost
from twostroke.types.plan import Hold
from twostroke.types.recorded.parts import TimeParts
from twostroke.types.recorded.prefix import MissReason, PrefixMiss
from twostroke.types.spec.formats import PAGE_TOKENS

LEAST_SHARE = 0.005
"""Causes of a smaller share of the time are not named."""
ALWAYS_LISTED = (CauseKind.PREFIX, CauseKind.DISK)
"""Causes that are named however small their share is: they explain where the prompt's tokens came from."""

LEAST_UNREAD_SHARE = 0.05
"""If pieces of the answer waited for the client for more than this share of the time, the client is named as a cause,
even when this did not delay the completion."""


BUSY_FACTOR = 1.5
"""Decode is called slow when it takes more than this many times its prediction by rates that were measured on the idle
machine."""


@dataclass(frozen=True, slots=True)
class ExplainContext:
    """The figures of one completion from which the causes of its time are found. cost: the cost model, None without
    one. step_tokens: the token budget of a step.

    measured: True when the cost model was measured on this machine.
    """

    account: Account
    cost: StepCost | None
    cold: Cold
    step_tokens: int
    measured: bool = False

    @property
    def start(self) -> TimeParts:
        """The parts of the time up to the first token, or of the whole time when there was no token."""
        return self.account.parts if self.account.start is None else self.account.start

    @property
    def stream(self) -> TimeParts:
        """The parts of the time after the first token."""
        return TimeParts() if self.account.start is None else self.account.parts - self.account.start

    @property
    def decoding(self) -> list[Segment]:
        """What each decoding sequence computed in a step from the middle of this completion's decode; empty where that
        step is not known."""
        return list(self.account.sample)

    @property
    def prefix_s(self) -> float:
        """The seconds of the completion's own prefill that cached pages would have saved, if the prefix cache had not
        dropped them."""
        account, miss = self.account, self.account.prefix_miss
        if miss is None or not miss.lost_tokens or self.cost is None or account.start is None:
            return 0.0
        cached, total = account.num_cached_tokens, account.num_prompt_tokens
        whole_s = prefill_s(self.cost, cached, total, self.step_tokens)
        less_s = prefill_s(self.cost, min(total - 1, cached + miss.lost_tokens), total, self.step_tokens)
        return max(0.0, 1 - less_s / whole_s) * max(0.0, account.parts.own_prefill_s - self.cold_prefill_s)

    @property
    def disk_s(self) -> float:
        """The seconds for which the completion waited for the disk. They are a part of its queueing."""
        return min(self.account.disk.seconds, self.account.parts.queue_s)

    @property
    def cold_prefill_s(self) -> float:
        """The seconds by which the request's own prefill took longer because the engine's first steps are slow."""
        return min(self.cold.prefill_s, self.account.parts.own_prefill_s)

    @property
    def busy_prefill_s(self) -> float:
        """Seconds of the request's own prefill in which the processor ran other programs."""
        left_s = self.account.parts.own_prefill_s - self.cold_prefill_s - self.prefix_s
        return max(0.0, min(self.account.delays.start_s, left_s))

    @property
    def busy_decode_s(self) -> float:
        """The seconds by which a busy processor made the decode longer. Two figures exist, and the larger one is
        returned. The system counted the first. The second is the time of measured steps less the prediction for an idle
        machine.

        The second figure includes what the system does not count for this thread. These are waits of the engine's other
        threads for a processor, and processors that a virtual machine did not get.
        """
        left_s = max(0.0, self.account.parts.decode_s - self.cold_decode_s)
        return min(left_s, max(self._delayed_share * left_s, self._unexplained_s(left_s)))

    @property
    def busy_reader_s(self) -> float:
        """The part of the client stall that was waiting for a busy processor. A client that reads in the engine's own
        thread had to wait for the processor too."""
        return self._delayed_share * self.account.parts.client_stall_s

    @property
    def busy_host_s(self) -> float:
        """Seconds of the host gap that a busy processor explains. The host gap is the time in and between steps in
        which neither the model nor sampling ran."""
        return self._delayed_share * self.account.parts.host_gap_s

    @property
    def _delayed_share(self) -> float:
        """How much of the decode, the client stall and the host gap after the first token was waiting for a busy
        processor, from 0 to 1. The system counts such waits from step to step, so they lie in these three parts."""
        parts = self.account.parts
        may_s = max(0.0, parts.decode_s - self.cold_decode_s) + parts.client_stall_s + parts.host_gap_s
        return min(1.0, self.account.delays.stream_s / may_s) if may_s > 0 else 0.0

    def _unexplained_s(self, decode_s: float) -> float:
        segments = self.decoding
        if not self.measured or self.cost is None or not segments:
            return 0.0
        steps = max(1, self.account.num_output_tokens - 1 - self.account.guesses.accepted)
        usual_s = device_seconds(self.cost.predict(segments)) * steps
        return decode_s - usual_s if decode_s > BUSY_FACTOR * usual_s else 0.0

    @property
    def cold_decode_s(self) -> float:
        """The seconds by which the decode took longer because the engine's first steps are slow."""
        return min(self.cold.decode_s, self.account.parts.decode_s)


def prefill_s(cost: StepCost, start: int, end: int, step_tokens: int) -> float:
    """Predicted seconds of computing positions [start, end) alone, in chunks."""
    seconds = 0.0
    while start < end:
        rows = min(step_tokens, end - start)
        seconds += device_seconds(cost.predict([Segment.prefill(start, rows, start + rows == end)]))
        start += rows
    return seconds


def causes_of(context: ExplainContext) -> list[Cause]:
    """Returns the causes of a completion's time, the one with the most seconds first. Causes that are too small to
    matter are left out. Exceptions are those in ALWAYS_LISTED, and the cause CLIENT where pieces of the answer were
    unread for long."""
    found = [
        _queue(context),
        _disk(context),
        _shared_prefill(context),
        _prefix(context),
        _cold(context),
        _encode(context),
        _own_prefill(context),
        _stretched(context),
        _preempted(context),
        _client(context),
        _host(context),
        _busy(context),
        _decode(context),
    ]
    least_s = LEAST_SHARE * context.account.e2e_s
    always = set(ALWAYS_LISTED)
    if context.account.unread_s > LEAST_UNREAD_SHARE * context.account.e2e_s:
        always.add(CauseKind.CLIENT)
    listed = [c for c in found if c is not None and (c.seconds > least_s or c.kind in always)]
    return sorted(listed, key=lambda cause: -cause.seconds)


def _queue(context: ExplainContext) -> Cause:
    account, story = context.account, context.account.queue
    text = _queue_text(story)
    if story.num_ahead:
        text += f"; {story.num_running} ran and {story.num_ahead} waited before it when it came"
    request_ids = tuple(share.request_id for share in story.behind) + tuple(reversed(story.ended))
    return Cause(CauseKind.QUEUE, Verdict.START, account.parts.queue_s - context.disk_s, text, request_ids)


def _disk(context: ExplainContext) -> Cause | None:
    read = context.account.disk
    if not read.seconds:
        return None
    text = f"{read.tokens:,} tokens of its prompt were read from the disk in {duration(read.seconds)}"
    if not read.tokens:
        text = "it waited for pages on the disk, which came too late or were damaged"
    elif context.cost is not None:
        start = max(0, context.account.num_cached_tokens - read.tokens)
        computing_s = prefill_s(context.cost, start, start + read.tokens, context.step_tokens)
        text += f" (computing them: {duration(computing_s)})"
    return Cause(CauseKind.DISK, Verdict.START, context.disk_s, text)


def _queue_text(story: QueueStory) -> str:
    full = story.hold in (Hold.SEQUENCES, Hold.PAGES, Hold.CALL)
    if full and story.ended:
        left = plain_names(tuple(reversed(story.ended)))
        meanwhile = f", and meanwhile came prefill of {names(story.behind)}" if story.behind else ""
        return f"after {left}, which had to end first: {story.hold}{meanwhile}"
    if story.behind:
        return f"after prefill of {names(story.behind)}" + (f": {story.hold}" if story.hold else "")
    if story.hold is not None:
        return f"{story.hold}"
    return "for the step that was under way" if story.num_running else "until the engine took it"


def _shared_prefill(context: ExplainContext) -> Cause:
    shares = context.account.start_shares
    text = (
        f"prefill of {names(shares)} stood in the steps of its own" if shares else "others' steps went before its own"
    )
    return Cause(
        CauseKind.SHARED_PREFILL,
        Verdict.START,
        context.start.others_prefill_s,
        text,
        tuple(share.request_id for share in shares),
    )


def _prefix(context: ExplainContext) -> Cause | None:
    miss, account = context.account.prefix_miss, context.account
    if miss is None:
        return None
    known = f"{account.num_cached_tokens:,} of {account.num_prompt_tokens:,} prompt tokens came from the cache"
    text = f"{known}; {_miss_text(miss, account.num_prompt_tokens)}"
    request_ids = () if miss.by is None else (miss.by,)
    return Cause(CauseKind.PREFIX, Verdict.START, context.prefix_s, text, request_ids)


def _miss_text(miss: PrefixMiss, num_prompt_tokens: int) -> str:
    lost, position = f"{miss.lost_tokens:,} tokens", f"position {miss.position:,}"
    if miss.reason is MissReason.SHORT:
        return f"{num_prompt_tokens} tokens are too few: only full pages of {PAGE_TOKENS} are shared"
    if miss.reason is MissReason.EMPTY:
        return "nothing was cached yet"
    if miss.reason is MissReason.SCORED:
        return "log probabilities of the prompt were asked for, so all of it was computed"
    if miss.reason is MissReason.EVICTED:
        return f"{lost} from {position} on had been cached and were evicted for others"
    if miss.reason is MissReason.UNFINISHED:
        return f"{lost} from {position} on were still being computed by {short(miss.by or '')}"
    if miss.reason is MissReason.STATE:
        return f"{lost} from {position} on are cached, but no snapshot of the model's state was kept behind them"
    if not miss.lost_tokens:
        return f"from {position} on it is like nothing that is cached"
    return f"it differs from a cached prompt at {position}; but for that, {lost} more would have been found"


def _cold(context: ExplainContext) -> Cause:
    seconds = context.cold_prefill_s + context.cold_decode_s
    side = Verdict.START if context.cold_prefill_s >= context.cold_decode_s else Verdict.STREAM
    text = "the engine had just started: its first steps took this much longer than such steps take later"
    return Cause(CauseKind.COLD, side, seconds, text)


def _encode(context: ExplainContext) -> Cause:
    text = f"its images, which became {context.account.image_tokens:,} tokens of the prompt"
    counts = context.account.encodes
    if counts.steps > 1:
        text += f"; they were encoded in {counts.pieces:,} pieces, which {counts.steps:,} steps had time for"
    return Cause(CauseKind.ENCODE, Verdict.START, context.account.parts.encode_s, text)


def _own_prefill(context: ExplainContext) -> Cause:
    account = context.account
    seconds = account.parts.own_prefill_s - context.cold_prefill_s - context.prefix_s - context.busy_prefill_s
    computed = account.num_prompt_tokens - account.num_cached_tokens
    rate = computed / account.parts.own_prefill_s if account.parts.own_prefill_s > 0 else 0.0
    text = f"its own prompt, {computed:,} tokens at {rate:,.0f} a second"
    if (counts := account.encodes).span_steps > 1:
        text += f"; {counts.span_steps:,} steps had time for rows of its images, in {counts.span_pieces:,} pieces"
    return Cause(CauseKind.OWN_PREFILL, Verdict.START, seconds, text)


def _stretched(context: ExplainContext) -> Cause:
    shares, seconds = context.account.stretches, context.stream.others_prefill_s
    if not shares:
        return Cause(CauseKind.STRETCHED, Verdict.STREAM, seconds, "steps of others went before its own")
    longest = max(shares, key=lambda share: share.longest_s)
    steps = sum(share.num_steps for share in shares)
    text = (
        f"prefill of {names(shares)} in {steps} of its steps; the longest, of {short(longest.request_id)}, made the "
        f"gap after token {max(1, longest.longest_at):,} longer by {duration(longest.longest_s)}"
    )
    return Cause(CauseKind.STRETCHED, Verdict.STREAM, seconds, text, tuple(share.request_id for share in shares))


def _preempted(context: ExplainContext) -> Cause:
    account, parts = context.account, context.account.parts
    by = tuple(dict.fromkeys(spell.by for spell in account.spells if spell.by != account.request_id))
    times = "once" if len(account.spells) == 1 else f"{len(account.spells)} times"
    reason = "because no KV page was free"
    if by:
        held = all(spell.found_none for spell in account.spells)
        reason = f"for {plain_names(by)}, which {'held' if held else 'needed'} the KV pages"
    text = (
        f"put back {times} {reason}: waited {duration(parts.preempted_s)}, computed its positions again in "
        f"{duration(parts.recompute_s)}"
    )
    seconds = parts.preempted_s + parts.recompute_s
    before_s = context.start.preempted_s + context.start.recompute_s
    side = Verdict.START if before_s > seconds / 2 else Verdict.STREAM
    return Cause(CauseKind.PREEMPTED, side, seconds, text, by)


def _client(context: ExplainContext) -> Cause:
    account = context.account
    text = "its reader did not take the pieces that lay ready"
    if account.unread_s > account.parts.client_stall_s:
        text += f" ({duration(account.unread_s)} in all, most of it while the engine went on)"
    return Cause(CauseKind.CLIENT, Verdict.STREAM, account.parts.client_stall_s - context.busy_reader_s, text)


def _host(context: ExplainContext) -> Cause:
    parts = context.account.parts
    seconds = parts.host_gap_s - context.busy_host_s
    side = Verdict.START if context.start.host_gap_s > parts.host_gap_s / 2 else Verdict.STREAM
    each = seconds / max(1, context.account.num_output_tokens)
    text = f"in and between its steps neither model nor sampling ran, {duration(each)} a token"
    return Cause(CauseKind.HOST, side, seconds, text)


def _decode(context: ExplainContext) -> Cause:
    account = context.account
    count = max(1, account.num_output_tokens - 1)
    decode_s = account.parts.decode_s - context.cold_decode_s - context.busy_decode_s
    token_s = decode_s / count
    text = f"{count:,} token{'s' * (count > 1)}, {duration(token_s)} each"
    segments = context.decoding
    if context.cost is not None and segments:
        text += f": {decode_shares(context.cost, segments)}"
    text += guesses_text(account.guesses, context.cost, segments)
    return Cause(CauseKind.DECODE, Verdict.STREAM, decode_s, text)


def _busy(context: ExplainContext) -> Cause:
    start_s = context.busy_prefill_s
    stream_s = context.busy_decode_s + context.busy_reader_s + context.busy_host_s
    seconds = start_s + stream_s
    counted_s = min(context.account.delays.start_s + context.account.delays.stream_s, seconds)
    reasons = []
    if counted_s > 0:
        reasons.append(f"for {duration(counted_s)} the engine was ready to compute and had to wait")
    if seconds > counted_s * (1 + LEAST_SHARE):
        reasons.append("its steps took this much longer than the cost model says")
    side = Verdict.START if start_s > stream_s else Verdict.STREAM
    text = f"the processor was busy with something else: {', and '.join(reasons)}"
    return Cause(CauseKind.BUSY, side, seconds, text)


def decode_shares(cost: StepCost, segments: list[Segment]) -> str:
    """Returns a text such as "62% reading weights, 4% the KV cache, 34% other; 3 sequences share a step"."""
    weights, attention = weight_share(cost, segments), kv_share(cost, segments)
    shared = f"; {len(segments)} sequences share a step" if len(segments) > 1 else ""
    return f"{weights:.0%} reading weights, {attention:.0%} the KV cache, {1 - weights - attention:.0%} other{shared}"


def weight_share(cost: StepCost, segments: list[Segment]) -> float:
    """The share of a step's time that products with weights take; the host's part is not counted."""
    return _share(cost, segments, ("weights", "head"))


def kv_share(cost: StepCost, segments: list[Segment]) -> float:
    """The share of a step's time that attention over the KV cache takes; the host's part is not counted."""
    return _share(cost, segments, ("attention",))


def _share(cost: StepCost, segments: list[Segment], parts: tuple[str, ...]) -> float:
    prediction = cost.predict(segments)
    whole_s = device_seconds(prediction)
    return sum(part.seconds for part in prediction.parts if part.name in parts) / whole_s if whole_s else 0.0
