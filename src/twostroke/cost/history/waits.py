"""Why completions waited in the queue: the steps that computed prompts meanwhile, the reasons that held requests back,
and the completions that ended."""

from __future__ import annotations

from collections import deque

from twostroke.cost.history.account import ChunkStep, LiveAccount, QueueStory, chunks_since, shares
from twostroke.types.plan import Hold

MAX_CHUNK_STEPS, MAX_HOLDS, MAX_ENDED = 4096, 1024, 2048


class Waits:
    """The last events for which completions wait. chunk_steps: steps with prefill. held: the reason that holds back
    requests now. holds: pairs (time from which it holds, reason). One thread writes; other threads may read lengths."""

    def __init__(self) -> None:
        self.chunk_steps: deque[ChunkStep] = deque(maxlen=MAX_CHUNK_STEPS)
        self.held: Hold | None = None
        self.holds: deque[tuple[float, Hold | None]] = deque(maxlen=MAX_HOLDS)
        self._ended: deque[tuple[float, str]] = deque(maxlen=MAX_ENDED)

    def hold(self, reason: Hold | None, begin_s: float) -> None:
        """Records the reason that holds back requests in a step that begins at begin_s."""
        if reason is not self.held:
            self.held = reason
            self.holds.append((begin_s, reason))

    def ended(self, request_id: str, at_s: float) -> None:
        """Records the end of a completion."""
        self._ended.append((at_s, request_id))

    def story(self, live: LiveAccount, until_s: float, num_steps: int) -> QueueStory:
        """Returns why a completion waited from its arrival until `until_s`. num_steps: the number of steps so far."""
        since_s = live.request.arrival_s
        if until_s <= since_s:
            return QueueStory(live.num_running, live.num_ahead)
        held: dict[Hold | None, float] = {}
        later_s = until_s
        for from_s, hold in reversed(self.holds):
            held[hold] = held.get(hold, 0.0) + later_s - max(from_s, since_s)
            later_s = from_s
            if from_s <= since_s:
                break
        held.pop(None, None)
        ended = []
        for at_s, request_id in reversed(self._ended):
            if at_s <= since_s:
                break
            ended.append(request_id)
        behind = shares(chunks_since(self.chunk_steps, since_s), live.request.request_id, since_s, num_steps)
        hold = max(held, key=lambda reason: held[reason], default=None)
        return QueueStory(live.num_running, live.num_ahead, hold, behind, tuple(reversed(ended)))
