"""How long a stream pauses when its replica is killed.

Knows: processes, clients.
Must not know: the package's insides.
"""

from __future__ import annotations

import random
import statistics
import time
from dataclasses import dataclass

from tools.cluster.case import Note, Outcome, gaps_of
from tools.cluster.processes import Server, random_checkpoint, serving

DETECTION_S = 0.05
VOCABULARY = 100_000


@dataclass(frozen=True)
class PauseAtAKill:
    """A pause is the longest gap of a stream whose replica is ended with SIGKILL in its middle. The same prompt is
    asked again afterwards: its text must be the same. killed_after: pieces of the stream.

    One prefill: the time to the first token of as many tokens as the stream has at the kill, none of them cached. The
    keeper starts the killed replica again beside the pause, on cores that are idle beside that prefill. So a second
    prefill is timed while a replica that had nothing to do starts again. The goal counts against that one; the share
    of the start is the difference of the two.
    """

    shape: str = "llama-3.2-1b"
    prompt_tokens: int = 512
    tokens: int = 100
    killed_after: int = 30
    kills: int = 3
    name: str = "pause"
    goal: str = f"the pause <= {DETECTION_S:g} s and one prefill beside a start; no stream is lost or changed"
    minutes: float = 2.0

    def run(self, note: Note) -> Outcome:
        """See Case."""
        model, draws = random_checkpoint(self.shape), random.Random(1)
        pauses, usual, prefills, beside, wrong = [], [], [], [], 0
        with serving(model, "--kv-memory", "512MB", "--context", "2k", replicas=2) as server:
            for number in range(self.kills):
                note(f"kill {number + 1} of {self.kills}")
                prompt = self._prompt(draws, self.prompt_tokens)
                prefills.append(self._prefill_s(server, draws))
                if not server.kill_a_replica(busy=False):
                    raise SystemExit("no replica was idle")
                time.sleep(DETECTION_S)
                beside.append(self._prefill_s(server, draws))
                server.wait_for_replicas(2)
                gaps, text = self._killed(server, prompt)
                pauses.append(max(gaps))
                server.wait_for_replicas(2)
                again = server.stream(prompt, self.tokens)
                usual.append(max(gaps_of(again.times_s)))
                wrong += again.text != text
        prefill_s, pause_s = statistics.median(beside), statistics.median(pauses)
        figures = {
            "pause_median_s": pause_s,
            "pause_most_s": max(pauses),
            "prefill_s": statistics.median(prefills),
            "prefill_beside_a_start_s": prefill_s,
            "usual_longest_gap_s": statistics.median(usual),
            "changed_streams": float(wrong),
        }
        return Outcome(figures, pause_s <= DETECTION_S + prefill_s and not wrong)

    def _prefill_s(self, server: Server, draws: random.Random) -> float:
        return server.stream(self._prompt(draws, self.prompt_tokens + self.killed_after), 2).times_s[0]

    def _killed(self, server: Server, prompt: list[int]) -> tuple[list[float], str]:
        left = self.killed_after

        def goes_on() -> bool:
            nonlocal left
            left -= 1
            return left != 0 or server.kill_a_replica(busy=True)

        found = server.stream(prompt, self.tokens, goes_on)
        if found.error or left >= 0:
            raise SystemExit(f"a stream was not killed in its middle: {found.error or 'too few pieces'}")
        return gaps_of(found.times_s), found.text

    def _prompt(self, draws: random.Random, tokens: int) -> list[int]:
        return [draws.randrange(2, VOCABULARY) for _ in range(tokens)]
