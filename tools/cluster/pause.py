"""How long a stream pauses when its replica is killed."""

from __future__ import annotations

import random
import statistics
from dataclasses import dataclass

from tools.cluster.case import Note, Outcome, gaps_of
from tools.cluster.processes import Server, Stream, random_checkpoint, serving

DETECTION_S = 0.05
VOCABULARY = 100_000


@dataclass(frozen=True)
class PauseAtAKill:
    """A pause is the longest gap of a stream whose replica is ended with SIGKILL in its middle. The same prompt is
    asked again afterwards, and the text must be the same. killed_after: the number of pieces of the stream before the
    kill.

    During the pause, another replica computes the prompt and the tokens so far again. The time of this prefill differs
    by more than the goal from one run to the next. So the prefill that counts is the one within the pause, as the
    replica that takes the stream over reports it. A prefill of a prompt of the same length, measured before, stands
    next to it.
    """

    shape: str = "llama-3.2-1b"
    prompt_tokens: int = 512
    tokens: int = 100
    killed_after: int = 30
    kills: int = 3
    name: str = "pause"
    goal: str = f"the pause <= {DETECTION_S:g} s and the prefill within it; no stream is lost or changed"
    minutes: float = 2.0

    def run(self, note: Note) -> Outcome:
        """See Case."""
        model, draws = random_checkpoint(self.shape), random.Random(1)
        pauses, within, usual, prefills, wrong = [], [], [], [], 0
        with serving(model, "--kv-memory", "512MB", "--context", "2k", replicas=2) as server:
            for number in range(self.kills):
                note(f"kill {number + 1} of {self.kills}")
                prompt = self._prompt(draws, self.prompt_tokens)
                longer = self._prompt(draws, self.prompt_tokens + self.killed_after)
                prefills.append(server.stream(longer, 2).times_s[0])
                killed = self._killed(server, prompt)
                pauses.append(max(gaps_of(killed.times_s)))
                within.append(server.parts_s(killed.name)["resume_s"])
                server.wait_for_replicas(2)
                again = server.stream(prompt, self.tokens)
                usual.append(max(gaps_of(again.times_s)))
                wrong += again.text != killed.text
        beyond_s = statistics.median(pause - prefill for pause, prefill in zip(pauses, within, strict=True))
        figures = {
            "pause_median_s": statistics.median(pauses),
            "pause_most_s": max(pauses),
            "prefill_within_s": statistics.median(within),
            "beyond_the_prefill_s": beyond_s,
            "prefill_before_s": statistics.median(prefills),
            "usual_longest_gap_s": statistics.median(usual),
            "changed_streams": float(wrong),
        }
        return Outcome(figures, beyond_s <= DETECTION_S and not wrong)

    def _killed(self, server: Server, prompt: list[int]) -> Stream:
        left = self.killed_after

        def goes_on() -> bool:
            nonlocal left
            left -= 1
            return left != 0 or server.kill_a_replica()

        found = server.stream(prompt, self.tokens, goes_on)
        if found.error or left >= 0:
            raise SystemExit(f"a stream was not killed in its middle: {found.error or 'too few pieces'}")
        return found

    def _prompt(self, draws: random.Random, tokens: int) -> list[int]:
        return [draws.randrange(2, VOCABULARY) for _ in range(tokens)]
