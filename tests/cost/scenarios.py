"""Scenarios with one deliberate cause, each from a seed, in virtual time. `victim` is the explained request."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from twostroke.cost.explain.advice import Options
from twostroke.cost.explain.explanation import CauseKind, Explanation, Verdict
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.what_if import WhatIf
from twostroke.engine.sync_engine import SyncEngine
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import PAGE_TOKENS, KVKind

from .virtual import MACHINE, SPEC, Lab, text

WHAT_IF = WhatIf(partial(work_of, SPEC), FORMATS, "int8", KVKind.BF16, MACHINE)


@dataclass(frozen=True, slots=True)
class Injected:
    """What explain must name: the kind, the side, words of the text, and some of the ids."""

    explanation: Explanation
    kind: CauseKind
    side: Verdict
    said: tuple[str, ...] = ()
    who: tuple[str, ...] = ()

    def is_named(self) -> bool:
        """Whether it is named first of the causes that are not the work itself."""
        causes = [cause for cause in self.explanation.causes if not cause.kind.is_work]
        return bool(causes) and causes[0].kind is self.kind and self._fits(self.kind)

    def is_told(self) -> bool:
        """Whether it is among the causes, at any place."""
        return self._fits(self.kind)

    def _fits(self, kind: CauseKind) -> bool:
        cause = next((each for each in self.explanation.causes if each.kind is kind), None)
        if cause is None or self.explanation.verdict is not self.side:
            return False
        return all(word in cause.text for word in self.said) and set(self.who) <= set(cause.who)


def explained(lab: Lab, name: str = "victim") -> Explanation:
    """The explanation of the one completion of this request."""
    explainer = Explainer(lab.ledger, WHAT_IF, Options(lab.max_step_tokens, lab.max_sequences))
    (explanation,) = explainer.explain(name)
    return explanation


def warmed(draw: random.Random, **sizes: int) -> Lab:
    """An engine that has answered a few small requests before time 0."""
    lab = Lab(**sizes)
    for number in range(3):
        lab.request(number * 0.01, f"warm{number}", text(900 + number, draw.randrange(20, 60)), draw.randrange(4, 12))
    lab.run()
    lab.zero_s = lab.clock.now
    return lab


def noisy(lab: Lab, draw: random.Random) -> Lab:
    """Adds small requests of others, which must not be named first."""
    for number in range(draw.randrange(1, 4)):
        lab.request(0.15 * draw.random(), f"small{number}", text(800 + number, draw.randrange(5, 20)), 3)
    return lab


def queue_prefill(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw), draw)
    lab.request(0, "long", text(1, draw.randrange(3000, 5000)), 4)
    lab.request(0.003, "victim", text(2, draw.randrange(10, 60)), draw.randrange(2, 6))
    lab.run()
    return Injected(explained(lab), CauseKind.QUEUE, Verdict.START, ("prefill of long",), ("long/0",))


def queue_places(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw, max_sequences=2), draw)
    lengths = [draw.randrange(80, 100), draw.randrange(100, 140)]
    for number, length in enumerate(lengths):
        lab.request(0, f"busy{number}", text(number, draw.randrange(20, 80)), length)
    lab.request(0.02 * draw.random(), "victim", text(2, draw.randrange(10, 60)), draw.randrange(2, 20))
    lab.run()
    return Injected(explained(lab), CauseKind.QUEUE, Verdict.START, ("busy0", "places of the batch"), ("busy0/0",))


def queue_pages(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw, num_pages=40), draw)
    lab.request(0, "big", text(1, draw.randrange(400, 440)), draw.randrange(60, 100))
    lab.request(0.02, "victim", text(2, draw.randrange(220, 300)), draw.randrange(2, 12))
    lab.run()
    return Injected(explained(lab), CauseKind.QUEUE, Verdict.START, ("big", "KV pool"), ("big/0",))


def shared_prefill(draw: random.Random) -> Injected:
    lab = warmed(draw)
    others = [f"other{number}" for number in range(draw.randrange(3, 5))]
    for number, name in enumerate(others):
        lab.request(0, name, text(number, draw.randrange(90, 110)), 2)
    lab.request(0, "victim", text(7, draw.randrange(20, 50)), 2)
    lab.run()
    who = tuple(f"{name}/0" for name in others)
    return Injected(explained(lab), CauseKind.SHARED_PREFILL, Verdict.START, ("prefill of",), who)


def stretched(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw), draw)
    lab.request(0, "victim", text(1, draw.randrange(10, 40)), draw.randrange(30, 60))
    others = [f"long{number}" for number in range(draw.randrange(1, 4))]
    for number, name in enumerate(others):
        lab.request(0.03 + 0.05 * draw.random(), name, text(number + 2, draw.randrange(1200, 2500)), 3)
    lab.run()
    who = tuple(f"{name}/0" for name in others)
    return Injected(explained(lab), CauseKind.STRETCHED, Verdict.STREAM, ("made the gap after token",), who)


def prefix_differs(draw: random.Random) -> Injected:
    lab = warmed(draw)
    base = text(1, draw.randrange(600, 1500))
    position = draw.randrange(0, 200)
    lab.request(0, "first", base, 3)
    lab.run()
    lab.zero_s = lab.clock.now
    changed = [*base[:position], 5, *base[position + 1 :]]
    lab.request(0, "victim", changed, 3)
    lab.run()
    said = (f"at position {position:,};",)
    return Injected(explained(lab), CauseKind.PREFIX, Verdict.START, said)


def prefix_evicted(draw: random.Random) -> Injected:
    lab = warmed(draw, num_pages=80)
    base = text(1, draw.randrange(500, 900))
    lab.request(0, "first", base, 3)
    lab.run()
    lab.zero_s = lab.clock.now
    lab.request(0, "thief", text(2, draw.randrange(1000, 1200)), 3)
    lab.run()
    lab.zero_s = lab.clock.now
    lab.request(0, "victim", base, 3)
    lab.run()
    return Injected(explained(lab), CauseKind.PREFIX, Verdict.START, ("evicted",))


def prefix_unfinished(draw: random.Random) -> Injected:
    lab = warmed(draw)
    base = text(1, draw.randrange(100, 240))
    for name in ("first", "victim"):
        lab.request(0, name, base, 2)
    lab.run()
    return Injected(explained(lab), CauseKind.PREFIX, Verdict.START, ("still being computed by first",), ("first/0",))


def prefix_short(draw: random.Random) -> Injected:
    lab = warmed(draw)
    base = text(1, draw.randrange(2, PAGE_TOKENS))
    lab.request(0, "first", base, 3)
    lab.request(0.5, "victim", base, 1)
    lab.run()
    return Injected(explained(lab), CauseKind.PREFIX, Verdict.START, ("full pages",))


def preempted(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw, num_pages=24), draw)
    lab.request(0, "old", text(1, draw.randrange(150, 180)), draw.randrange(120, 180))
    lab.request(0.001, "victim", text(2, draw.randrange(100, 120)), draw.randrange(90, 110))
    lab.run()
    return Injected(explained(lab), CauseKind.PREEMPTED, Verdict.STREAM, ("for old",), ("old/0",))


def client_stall(draw: random.Random) -> Injected:
    lab = warmed(draw)
    engine = SyncEngine(lab.stepper)
    params = SamplingParams(max_tokens=draw.randrange(10, 40), ignore_eos=True, temperature=0.0)
    for _ in engine.stream([Prompt(tuple(text(1, draw.randrange(10, 60))), params, "victim")]):
        if draw.random() < 0.3:
            lab.clock.now += 0.02 + 0.1 * draw.random()
    return Injected(explained(lab), CauseKind.CLIENT, Verdict.STREAM, ("did not take",))


def host_gap(draw: random.Random) -> Injected:
    lab = noisy(warmed(draw), draw)
    lab.clock.tick_s = 0.002 + 0.004 * draw.random()
    lab.request(0, "victim", text(1, draw.randrange(10, 60)), draw.randrange(10, 40))
    lab.run()
    return Injected(explained(lab), CauseKind.HOST, Verdict.STREAM)


def busy_processor(draw: random.Random) -> Injected:
    """Another program takes the processor in some of the steps that decode."""
    lab = noisy(warmed(draw), draw)
    share, delay_s = 0.2 + 0.6 * draw.random(), 0.004 + 0.05 * draw.random()
    lab.executor.delayed_s = lambda plan: delay_s if plan.num_tokens < 9 and draw.random() < share else 0.0
    lab.request(0, "victim", text(1, draw.randrange(10, 40)), draw.randrange(30, 60))
    lab.run()
    said = ("the processor was busy with something else", "ready to compute and had to wait")
    return Injected(explained(lab), CauseKind.BUSY, Verdict.STREAM, said)


def busy_while_it_read(draw: random.Random) -> Injected:
    lab = warmed(draw)
    lab.executor.delayed_s = lambda plan: 0.3 + draw.random() if plan.num_tokens > 8 else 0.0
    lab.request(0, "victim", text(1, draw.randrange(100, 2000)), 3)
    lab.run()
    return Injected(explained(lab), CauseKind.BUSY, Verdict.START, ("busy with something else",))


def cold_start(draw: random.Random) -> Injected:
    lab = Lab()
    factor = 3 + 10 * draw.random()
    lab.executor.slower = lambda plan: factor if plan.step_id <= 2 else 1.0
    lab.request(0, "victim", text(1, draw.randrange(10, 200)), draw.randrange(4, 10))
    for number in range(draw.randrange(4, 8)):
        lab.request(3 + number, f"later{number}", text(number + 2, draw.randrange(10, 200)), draw.randrange(4, 10))
    lab.run()
    return Injected(explained(lab), CauseKind.COLD, Verdict.START, ("just started",))


def long_prompt(draw: random.Random) -> Injected:
    lab = warmed(draw)
    lab.request(0, "victim", text(1, draw.randrange(2000, 6000)), 2)
    lab.run()
    return Injected(explained(lab), CauseKind.OWN_PREFILL, Verdict.START, ("tokens at",))


def plain_decode(draw: random.Random) -> Injected:
    lab = warmed(draw)
    lab.request(0, "victim", text(1, draw.randrange(20, 60)), draw.randrange(60, 150))
    lab.run()
    return Injected(explained(lab), CauseKind.DECODE, Verdict.STREAM, ("reading weights",))


Scenario = Callable[[random.Random], Injected]

FIRST: tuple[Scenario, ...] = (
    queue_prefill,
    queue_places,
    queue_pages,
    shared_prefill,
    stretched,
    prefix_differs,
    prefix_evicted,
    preempted,
    client_stall,
    host_gap,
    busy_processor,
    busy_while_it_read,
    cold_start,
)
"""Causes that must come before all others except the work itself."""

TOLD: tuple[Scenario, ...] = (prefix_unfinished, prefix_short, long_prompt, plain_decode)
"""Causes that must be named at any place, because they are small by nature or are the work itself."""
