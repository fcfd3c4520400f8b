"""/metrics of a front: preemptions and guesses are sums over its replicas, and do not fall when a replica leaves."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cluster import running
from tests.cluster.test_pages_travel import OPTIONS, served
from tests.patience import PATIENCE_S
from tests.serve.harness import Live, serving, wait_until
from twostroke.server.build_front import build_front
from twostroke.types.recorded.verified_guesses import VerifiedGuesses

pytestmark = pytest.mark.slow

SMALL = {**OPTIONS, "speculate": "ngram", "kv_memory": "1500kB", "context": "512"}
PROMPTS = [f"{number} one two three four " * 10 for number in range(12)]
"""Prompts with different beginnings, because prompts with the same beginning would go to one replica."""


def figures(front: Live) -> dict[str, float]:
    return parsed(front.get("/metrics").body.decode())


def parsed(text: str) -> dict[str, float]:
    families = text_string_to_metric_families(text)
    return {
        sample.name + "".join(f"{{{each}}}" for each in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.daily
def test_preemptions_and_guesses_are_those_of_all_replicas() -> None:
    with ExitStack() as stack:
        replicas = [stack.enter_context(served("both", SMALL, name)) for name in ("one", "two")]
        addresses = [address for _, address in replicas]
        front = stack.enter_context(build_front("spark", {}, addresses, "s", lambda text: None))
        live = stack.enter_context(serving(front.parts))
        fleet = front.parts.serving.engine._stepper.fleet
        wait_until(lambda: len(fleet.members) == 2, "both replicas")
        asked = {"model": "spark", "prompt": PROMPTS, "max_tokens": 150, "ignore_eos": True, "n": 2}
        assert live.post("/v1/completions", asked).status == 200
        for place, (built, _) in enumerate(replicas):
            # Whether memory runs short depends on the routing, and whether guesses pay depends on measured times.
            core = built.replica._core
            streams = core._streams
            streams._book._scheduler._preemptions += 3 + place
            streams._guesses = streams._guesses.plus(VerifiedGuesses(2, 5, 3 + place, (2, 1 + place)))
        loads = [built.replica._core.load() for built, _ in replicas]
        guesses = [load.guesses for load in loads]
        assert all(load.preemptions >= 3 for load in loads)
        assert all(each.accepted >= 3 for each in guesses)

        def agrees() -> bool:
            """Waits, because a replica's counts come a little later than its tokens."""
            now = figures(live)
            return (
                now["twostroke_preemptions_total"] == sum(load.preemptions for load in loads)
                and now["twostroke_drafts_total"] == sum(each.guesses for each in guesses)
                and now["twostroke_draft_tokens_total"] == sum(each.tokens for each in guesses)
                and now["twostroke_accepted_draft_tokens_total"] == sum(each.accepted for each in guesses)
            )

        wait_until(agrees, "the sums")
        before = figures(live)
        places = [name for name in before if name.startswith("twostroke_accepted_draft_tokens_per_pos_total")]
        assert sum(before[name] for name in places) == sum(each.accepted for each in guesses)
        replicas[0][0].replica.stop()
        wait_until(lambda: len(fleet.members) == 1, "one replica left")
        after = figures(live)
        assert all(after[name] >= before[name] for name in before if name.endswith("_total"))


def test_counts_of_replicas_in_other_processes_reach_the_front_and_outlive_them() -> None:
    with running.serving(2, "--kv-memory", "1500kB", "--context", "512", "--speculate", "ngram") as server:

        def now() -> dict[str, float]:
            return parsed(httpx2.get(f"{server.url}/metrics", timeout=PATIENCE_S).text)

        before = now()
        assert before["twostroke_preemptions_total"] == 0
        server.client.completions.create(
            model=server.name, prompt=PROMPTS, max_tokens=150, n=2, extra_body={"ignore_eos": True}
        )
        # All prompts together are twice as long as both caches.
        wait_until(lambda: now()["twostroke_preemptions_total"] > 0, "a preemption")
        found = now()
        places = [name for name in found if name.startswith("twostroke_accepted_draft_tokens_per_pos_total")]
        accepted = found["twostroke_accepted_draft_tokens_total"]
        assert sum(found[name] for name in places) == accepted <= found["twostroke_draft_tokens_total"]
        (old, _) = replicas = server.replicas()
        os.kill(old, signal.SIGKILL)
        wait_until(lambda: len(server.replicas()) == 2 and server.replicas() != replicas, "another replica")
        after = now()
        totals = [name for name in found if name.endswith("_total")]
        assert totals and all(after[name] >= found[name] for name in totals)
