"""The leader of a group sends each plan to the members and computes its own part of it.

A group that has lost a member, or has failed in a step, is over: its members may have computed different things. All
running requests fail with one error, and the engine stops, as it does when its kernels fail.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from twostroke.distributed.ranks.frames import Frame, RankAsk, RankFailed, RankHere, RankReady, RankRows, RankWaited
from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.distributed.ranks.step_changes import StepEncoder
from twostroke.distributed.ranks.step_rows import given_frames
from twostroke.engine.executor import Executor
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.forward import Forward
from twostroke.runner.images.step_images import NO_IMAGES, StepImages
from twostroke.types.errors import BackendError, EngineStopped, MeetingLost, TwostrokeError
from twostroke.types.plan import Plan
from twostroke.types.recorded.exchange_spent import ExchangeSpent
from twostroke.types.result import StepResult

JOIN_S = 5.0
ANSWER_S = 2.0
"""The seconds within which a running process answers, even while it computes."""


class MeetingPlace(Protocol):
    """The interface of the exchange between the ranks of a RankGroup, by shared memory or sockets. The ranks add up
    values of a step (tensor parallel), or pass them on to the next rank (pipeline)."""

    def begin(self, number: int) -> None:
        """Sets the number of the next forward pass, before the pass begins. A rank that finds another rank at a
        different number ends."""

    def end(self) -> None:
        """Makes every rank that waits for another rank's values stop waiting, because the group has ended."""

    def spent(self) -> ExchangeSpent:
        """Returns the time and bytes that the exchange has taken in all passes of the model. Call it between passes."""


class RankGroup:
    """The leader's connections to the members, each with a thread that waits for the member's frames.

    describe: a function that returns how a member's process ended, for a member that sent no last frame.
    """

    def __init__(self, lines: Sequence[RankLine], first_rank: int, describe: Callable[[int], str]) -> None:
        self._lines, self._first_rank, self._describe = list(lines), first_rank, describe
        self._changed = threading.Condition()
        self._ready: dict[int, RankReady] = {}
        self._here: set[int] = set()
        self._when_lost: Callable[[], None] = lambda: None
        self._lost: TwostrokeError | None = None
        self._closing = False
        self._meeting: MeetingPlace | None = None
        self._passes = 0
        self._watching = [
            threading.Thread(target=self._watch, args=(index,), name=f"rank-{first_rank + index}", daemon=True)
            for index in range(len(lines))
        ]

    def start(self) -> None:
        """Starts one thread for each member, which waits for the member's frames."""
        for thread in self._watching:
            thread.start()

    def wait_ready(self) -> dict[int, RankReady]:
        """Waits until every member has loaded its part. Raises the error with which a member failed."""
        with self._changed:
            while self._lost is None and len(self._ready) < len(self._lines):
                self._changed.wait()
            if self._lost is not None:
                raise self._lost
            return dict(self._ready)

    def meet_in(self, meeting: MeetingPlace) -> None:
        """Sets the exchange over which the ranks of this group pass values from now on."""
        self._meeting = meeting
        if self._lost is not None:
            meeting.end()

    @property
    def whole(self) -> bool:
        """Whether no member was lost."""
        return self._lost is None

    def require_whole(self) -> None:
        """Raises EngineStopped where a member was lost."""
        if self._lost is not None:
            raise EngineStopped("The engine has stopped: a rank was lost.", why=str(self._lost), fix="Start it again.")

    def exchanged(self) -> ExchangeSpent:
        """Returns the time and bytes that the leader's exchange has taken so far. Call it between passes."""
        return ExchangeSpent() if self._meeting is None else self._meeting.spent()

    def when_lost(self, then: Callable[[], None]) -> None:
        """Registers `then`, which is called when a member is lost, in any thread, even while no step runs. Calls it now
        where a member was lost already."""
        with self._changed:
            self._when_lost = then
            lost = self._lost is not None
        if lost:
            then()

    def lose_the_late(self, error: MeetingLost) -> None:
        """Finds the lost members after a step has failed because a member did not join the exchange in time. Members
        that do not answer RankAsk count as lost."""
        for index, line in enumerate(self._lines):
            try:
                line.send(RankAsk())
            except RankLineLost as gone:
                return self.lose(self._gone(index, gone))
        until = time.monotonic() + ANSWER_S
        with self._changed:
            while self._lost is None and len(self._here) < len(self._lines) and time.monotonic() < until:
                self._changed.wait(max(0.0, until - time.monotonic()))
            silent = [self._first_rank + index for index in range(len(self._lines)) if index not in self._here]
        if silent:
            named = f"Rank {silent[0]} hangs" if len(silent) == 1 else f"Ranks {', '.join(map(str, silent))} hang"
            return self.lose(EngineStopped(f"{named}: no answer in {ANSWER_S:g} s.", why=str(error)))
        self.lose(
            EngineStopped(
                "A rank did not come to an exchange in time, and all ranks answer.",
                why=str(error),
                fix="Where a step takes so long, give a longer --rank-timeout.",
            )
        )

    def tell(self, frame: Frame) -> int:
        """Sends a frame to all members, each of which runs a pass of the program. Returns the number of that pass.

        Where a member was lost before, nothing is sent, and `meet` raises the error.
        """
        self._passes += 1
        self.send(frame, range(len(self._lines)))
        return self._passes

    def send(self, frame: Frame, members: Iterable[int]) -> None:
        """Sends a frame to these members, given by their indices. A member whose connection is gone is noted as lost.
        """
        for index in members if self.whole else ():
            try:
                self._lines[index].send(frame)
            except RankLineLost as error:
                self.lose(self._gone(index, error))

    def meet(self, number: int) -> None:
        """Begins the forward pass of this number on the leader. Raises EngineStopped where a member was lost."""
        self.require_whole()
        if self._meeting is not None:
            self._meeting.begin(number)

    def lose(self, error: TwostrokeError) -> None:
        """Ends the group with this error. If it is called again, the first error counts."""
        with self._changed:
            first = self._lost is None and not self._closing
            self._lost = error if first else self._lost
            then = self._when_lost
            self._changed.notify_all()
        if self._meeting is not None:
            self._meeting.end()
        if first:
            then()

    def close(self) -> None:
        """Closes all connections to members. A member ends when its connection to the leader ends. Closing twice is
        harmless."""
        with self._changed:
            self._closing = True
        for line in self._lines:
            line.end()
        for thread in self._watching:
            if thread.is_alive():
                thread.join(JOIN_S)
        for line in self._lines:
            line.close()

    def _gone(self, index: int, error: RankLineLost) -> TwostrokeError:
        rank = self._first_rank + index
        return EngineStopped(f"Rank {rank} has ended: {self._describe(rank) or error}.", fix="Its messages say why.")

    def _watch(self, index: int) -> None:
        while True:
            try:
                frame = self._lines[index].receive()
            except RankLineLost as error:
                return self.lose(self._gone(index, error))
            if isinstance(frame, RankFailed):
                return self.lose(EngineStopped(f"Rank {self._first_rank + index} failed.", why=frame.text))
            with self._changed:
                if isinstance(frame, RankReady):
                    self._ready[index] = frame
                elif isinstance(frame, (RankHere, RankWaited)):
                    self._here.add(index)
                self._changed.notify_all()
            if isinstance(frame, RankWaited):
                return  # the step fails on the leader, too, and finds out there which rank was late


class PreparesImages(Protocol):
    """The part of `runner.images.image_encoder.ImageRows` that ImageSender uses."""

    def prepare(self, plan: Plan) -> StepImages:
        """Returns what images add to the plan's step, which is executed later."""


class ImageSender:
    """Encodes the images of a plan and sends the rows to the members that need them. takers: for each piece of an image
    row (see RankGiven), the indices of the members whose layers use it."""

    def __init__(self, images: PreparesImages, takers: Sequence[Sequence[int]]) -> None:
        self._images, self._takers = images, takers

    def send(self, plan: Plan, group: RankGroup) -> StepImages:
        """Encodes the images that the plan's step shows, and sends their rows to members of the group. Returns what
        images add to the step."""
        images = self._images.prepare(plan)
        for frame in given_frames(images, len(self._takers)):
            group.send(frame, self._takers[frame.piece])
        return images


class _Begun(NamedTuple):
    """A plan that was sent to the members. number: the number of its forward pass. fault: the error for which the plan
    was not sent; else None."""

    plan: Plan
    number: int = 0
    fault: Exception | None = None


class LeadingExecutor:
    """Satisfies `engine.executor.Executor`: it computes the same plan on all ranks.

    In a pipeline the stages compute one after the other, the leader last. So the members can `begin` a plan while the
    leader still executes the plan before. images: sends image rows; None for a model that reads no images.
    """

    def __init__(self, inner: Executor, group: RankGroup, images: ImageSender | None = None) -> None:
        self._inner, self._group, self._encoder = inner, group, StepEncoder()
        self._images = images
        self._begun: deque[_Begun] = deque()
        self._early_s = 0.0

    def begin(self, plan: Plan) -> None:
        """Sends the plan to the members, which compute their part of it after the plans before it. See
        `engine.plans_in_flight`.

        Images that the plan needs are encoded first, so no member waits for an encode inside a step.
        """
        begin_s = time.perf_counter()
        try:
            images = NO_IMAGES if self._images is None else self._images.send(plan, self._group)
        except Exception as error:
            return self._begun.append(_Begun(plan, fault=error))
        except BaseException:
            self._begun.append(_Begun(plan, fault=BackendError("An encode was interrupted.")))
            raise
        if images is not NO_IMAGES:
            self._early_s += time.perf_counter() - begin_s
        self._begun.append(_Begun(plan, self._group.tell(self._encoder.step(plan, images))))

    def execute(self, plan: Plan) -> StepResult:
        """Executes the plan. Raises EngineStopped where a rank was lost or the step failed here. The error of an image
        encode is raised before any rank has begun the plan, so the group stays usable."""
        if not self._begun:
            try:
                self.begin(plan)
            except BaseException:
                self._begun.clear()
                raise
        begun = self._begun.popleft()
        if begun.plan is not plan:
            self._group.lose(EngineStopped("A plan was to be executed before another one that its ranks began first."))
        early_s, self._early_s = self._early_s, 0.0
        if begun.fault is not None:
            self._group.require_whole()
            raise begun.fault
        before = self._group.exchanged()
        self._group.meet(begun.number)
        try:
            result = self._inner.execute(plan)
            model_s, exchange = result.model_s + early_s, self._group.exchanged() - before
            return replace(result, model_s=model_s, exchange=exchange)
        except MeetingLost as error:
            self._group.lose_the_late(error)
            self._group.require_whole()
            raise
        except Exception as error:
            self._group.lose(EngineStopped("A step failed at the rank that leads.", why=str(error)))
            self._group.require_whole()
            raise


class LeadingForward:
    """Satisfies `runner.forward.Forward` on the leader. When further logits of the last step are needed (`logits`), it
    makes the members compute their parts too. head_needs_members: whether members compute a part of the head."""

    def __init__(self, inner: Forward, group: RankGroup, head_needs_members: bool) -> None:
        self._inner, self._group, self._head_needs_members = inner, group, head_needs_members

    def __call__(self, sizes: StepSizes) -> F32Array:
        return self._inner(sizes)

    @property
    def max_rows(self) -> int:
        return self._inner.max_rows

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        if self._head_needs_members:
            self._group.meet(self._group.tell(RankRows(rows.tolist())))
        return self._inner.logits(rows, sizes)
