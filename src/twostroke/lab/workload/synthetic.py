"""Workloads made from a seed: closed and open loops, bursts, and the named traces (NAMED) with which scheduling
policies are compared.

    requests = NAMED["steady-chat"](Load(rate_per_s=2, count=100, seed=1))

Each maker has random number generators of its own, so that the same seed gives the same lengths at another rate.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from twostroke.lab.workload.arrivals import gamma_bursts, on_off, poisson
from twostroke.lab.workload.blocks import PromptBlocks
from twostroke.lab.workload.draws import Draws
from twostroke.lab.workload.lengths import Lengths
from twostroke.lab.workload.request import WorkloadRequest

BLOCK_TOKENS = 16
"""The tokens of a block of synthetic shared prompts. A block has the size of a page of this engine, so that all of a
shared prefix can be found in the cache."""

INTERACTIVE, BATCH = 0, 1


@dataclass(frozen=True, slots=True)
class Load:
    """The amount of a named workload. rate_per_s: the mean requests a second. count: the number of requests. tokens: a
    factor for all lengths."""

    rate_per_s: float
    count: int
    seed: int = 0
    tokens: float = 1.0


def closed_loop(count: int, prompt: Lengths, output: Lengths, seed: int = 0) -> list[WorkloadRequest]:
    """Makes requests without arrival times. The users of a closed loop take them in turn."""
    return plain([0.0] * count, prompt, output, seed)


def open_loop(rate_per_s: float, count: int, prompt: Lengths, output: Lengths, seed: int = 0) -> list[WorkloadRequest]:
    """Makes requests with Poisson arrivals."""
    return plain(poisson(rate_per_s, count, Draws(seed, "arrivals")), prompt, output, seed)


def bursts(
    rate_per_s: float, count: int, prompt: Lengths, output: Lengths, seed: int = 0, shape: float = 0.25
) -> list[WorkloadRequest]:
    """Makes requests with Gamma arrivals. With a smaller shape, more of them come in bursts."""
    return plain(gamma_bursts(rate_per_s, count, Draws(seed, "arrivals"), shape), prompt, output, seed)


def plain(
    times_s: Sequence[float], prompt: Lengths, output: Lengths, seed: int, priority: int = INTERACTIVE
) -> list[WorkloadRequest]:
    """Makes requests at these times that share no prefix."""
    prompts, outputs = Draws(seed, "prompts"), Draws(seed, "outputs")
    return [
        WorkloadRequest(time_s, prompt.draw(prompts), output.draw(outputs), priority=priority) for time_s in times_s
    ]


def steady_chat(load: Load) -> list[WorkloadRequest]:
    """Makes the requests of people who type: prompts around 200 tokens, answers around 120, Poisson."""
    prompt = Lengths(200, 0.8, 16, 2000).scaled(load.tokens)
    output = Lengths(120, 0.6, 8, 600).scaled(load.tokens)
    return open_loop(load.rate_per_s, load.count, prompt, output, load.seed)


def long_document_bursts(load: Load) -> list[WorkloadRequest]:
    """Makes chat requests; one request in eight is a document of thousands of tokens. The documents come together."""
    documents = load.count // 8
    chat = steady_chat(Load(load.rate_per_s * 7 / 8, load.count - documents, load.seed, load.tokens))
    span_s = max((request.arrival_s for request in chat), default=0.0) or 1.0
    rate_per_s = max(1, documents) / span_s
    draws = Draws(load.seed, "documents")
    times = on_off(rate_per_s, documents, draws, span_s / 20, span_s / 5)
    long = Lengths(3000, 0.5, 1000, 8000).scaled(load.tokens)
    answer = Lengths(100, 0.4, 16, 300).scaled(load.tokens)
    return in_order([*chat, *plain(times, long, answer, load.seed + 1)])


def shared_prefix_agents(load: Load) -> list[WorkloadRequest]:
    """Makes the requests of four kinds of agents, each kind with one long system prompt. Every turn of a session
    repeats the turns before it.

    A session takes about six turns. The next turn begins after the time that it takes to read the answer and to call
    tools.
    """
    arrivals, picks = Draws(load.seed, "arrivals"), Draws(load.seed, "agents")
    system = Lengths(1024).scaled(load.tokens).median_tokens
    asked = Lengths(60, 0.6, 8, 400).scaled(load.tokens)
    answered = Lengths(80, 0.5, 8, 300).scaled(load.tokens)
    blocks = PromptBlocks(BLOCK_TOKENS)
    turns = 6
    sessions = -(-load.count // turns)
    found: list[WorkloadRequest] = []
    for session, start_s in enumerate(poisson(load.rate_per_s / turns, sessions, arrivals)):
        kind, tokens, now_s = picks.below(4), system, start_s
        for _ in range(turns):
            tokens += asked.draw(picks)
            output = answered.draw(picks)
            ids = blocks.ids(("system", kind), system, ("session", session), tokens)
            found.append(WorkloadRequest(now_s, tokens, output, ids, BLOCK_TOKENS))
            tokens += output
            now_s += picks.exponential(turns / load.rate_per_s)
    return in_order(found)[: load.count]


def mixed_batch_interactive(load: Load) -> list[WorkloadRequest]:
    """Makes two thirds interactive requests (priority 0) and one third batch work (priority 1) that arrives in bursts.
    """
    batch = load.count // 3
    people = steady_chat(Load(load.rate_per_s * 2 / 3, load.count - batch, load.seed, load.tokens))
    times = gamma_bursts(load.rate_per_s / 3, batch, Draws(load.seed, "batch"), 0.1)
    prompt = Lengths(800, 0.5, 100, 4000).scaled(load.tokens)
    output = Lengths(200, 0.4, 32, 600).scaled(load.tokens)
    return in_order([*people, *plain(times, prompt, output, load.seed + 1, BATCH)])


def overload(load: Load) -> list[WorkloadRequest]:
    """Makes chat requests. The middle third of them comes at four times the rate."""
    third = load.count // 3
    draws = Draws(load.seed, "arrivals")
    calm = 1 / load.rate_per_s
    times, now_s = [], 0.0
    for index in range(load.count):
        now_s += draws.exponential(calm / 4 if third <= index < 2 * third else calm)
        times.append(now_s)
    prompt = Lengths(200, 0.8, 16, 2000).scaled(load.tokens)
    output = Lengths(120, 0.6, 8, 600).scaled(load.tokens)
    return plain(times, prompt, output, load.seed)


def in_order(requests: Sequence[WorkloadRequest]) -> list[WorkloadRequest]:
    """Returns the requests by arrival; equal times keep their order."""
    return sorted(requests, key=lambda request: request.arrival_s)


NAMED: Mapping[str, Callable[[Load], list[WorkloadRequest]]] = {
    "steady-chat": steady_chat,
    "long-document-bursts": long_document_bursts,
    "shared-prefix-agents": shared_prefix_agents,
    "mixed-batch-interactive": mixed_batch_interactive,
    "overload": overload,
}
"""The five named traces on which policies are judged (issue 4)."""
