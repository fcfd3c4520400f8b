"""A session with one server. It finds the model, finds words that are one token each for synthetic prompts, and warms
up. Then it measures, once or many times."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from twostroke.lab.bench.load.client import CHAT, COMPLETIONS, Asking, LoadClient
from twostroke.lab.bench.load.connections import Connections, open_connections
from twostroke.lab.bench.load.counting import require_answer, word_list
from twostroke.lab.bench.load.drive import Drive, Progress
from twostroke.lab.bench.load.guessed import GuessTotals, guess_totals
from twostroke.lab.bench.load.interrupt import stopped_by_interrupt
from twostroke.lab.bench.load.server import Facts, base_url, find_model
from twostroke.lab.bench.load.words import OPENING, WordList
from twostroke.lab.workload.arrange import Arrangement, arranged
from twostroke.lab.workload.observation import Observation
from twostroke.lab.workload.request import WorkloadRequest
from twostroke.text.tokenizer import Tokenizer

TICK_S = 0.5
WARMUP_STREAM = 0x5EED
PREPARED_TOKENS = 20_000_000
"""Where all prompts together have at most this many tokens, they are made before the run. Otherwise each prompt is made
just before it is sent, which takes a millisecond."""

Watch = Callable[[Progress], None]
"""A function that is called twice a second while a run goes on."""


@dataclass(frozen=True, slots=True)
class Target:
    """The server to ask, and how. route: the path of requests; None for chat, or for completions where the server
    reports that the model has no chat template. silence_s: how long the server may send nothing, in seconds. tokenizer:
    the model's tokenizer, or None."""

    url: str
    model: str | None = None
    api_key: str | None = None
    route: str | None = None
    exact: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)
    silence_s: float = 600.0
    tokenizer: Tokenizer | None = None


@dataclass(slots=True)
class Measured:
    """The result of one run. seen: the observations of the requests. indexes: for each observation, the index of its
    request in `asked`. asked: the workload as it was sent. guesses: the guessed tokens that the server counted during
    the run; None where it counts none."""

    seen: list[Observation]
    indexes: list[int]
    asked: list[WorkloadRequest]
    clipped: int
    cut: int
    interrupted: bool
    guesses: GuessTotals | None = None


class Session:
    """A session with one server, made by `open_session`. words: the words of synthetic prompts; None where every prompt
    brings its text."""

    def __init__(
        self, connections: Connections, asking: Asking, facts: Facts, words: WordList, clock: Callable[[], float]
    ) -> None:
        self._connections, self._asking, self._clock = connections, asking, clock
        self.facts, self.words = facts, words

    async def warm_up(self, requests: Sequence[WorkloadRequest], count: int, seed: int) -> None:
        """Sends the first `count` requests of the workload, with texts that the measurement does not use. Raises
        ConfigError where one fails."""
        client = LoadClient(self._connections, self._asking, self._clock)
        for index, request in enumerate(self._fitting(requests[:count])):
            text = self.words.text(request, seed ^ WARMUP_STREAM, index)
            require_answer(await client.ask(text, request.output_tokens, client.now_s()), self.facts.base_url)

    async def measure(
        self,
        requests: Sequence[WorkloadRequest],
        users: int | None,
        seed: int,
        until_s: float | None = None,
        watch: Watch = lambda progress: None,
    ) -> Measured:
        """Runs a closed loop of `users`; where `users` is None, sends each request at its time. The first interrupt
        ends the run early."""
        asked = self._fitting(requests)
        clipped = sum(fit != was for fit, was in zip(asked, requests, strict=True))
        early = sum(request.prompt_tokens for request in asked) <= PREPARED_TOKENS
        texts = [self.words.text(request, seed, index) for index, request in enumerate(asked)] if early else None
        progress, stop, indexes = Progress(len(asked)), asyncio.Event(), []
        client = LoadClient(self._connections, self._asking, self._clock)

        async def ask(index: int, request: WorkloadRequest, intended_s: float) -> Observation:
            text = texts[index] if texts is not None else self.words.text(request, seed, index)
            seen = await client.ask(text, request.output_tokens, intended_s, request.priority)
            indexes.append(index)
            return seen

        before = await guess_totals(self._connections.fresh, self.facts.base_url)
        drive = Drive(ask, client.now_s, progress, stop)
        ticker = asyncio.create_task(_tick(progress, watch))
        try:
            with stopped_by_interrupt(stop):
                if users is None:
                    await drive.timetable(asked, until_s)
                else:
                    await drive.users(asked, users, until_s)
        finally:
            ticker.cancel()
            await asyncio.gather(ticker, return_exceptions=True)
        watch(progress)
        after = await guess_totals(self._connections.fresh, self.facts.base_url) if before is not None else None
        guesses = after.since(before) if after is not None and before is not None else None
        return Measured(progress.seen, indexes, asked, clipped, progress.cut, stop.is_set(), guesses)

    def _fitting(self, requests: Sequence[WorkloadRequest]) -> list[WorkloadRequest]:
        """Returns the requests, cut to the server's context length where the server reports one."""
        return arranged(requests, Arrangement(max_context_tokens=self.facts.context_tokens))


@contextlib.asynccontextmanager
async def open_session(target: Target, clock: Callable[[], float], count_words: bool) -> AsyncIterator[Session]:
    """Finds the server and its model. count_words: True when prompts must be made up, so that words of one token each
    are looked for. Raises ConfigError where the server does not answer as required."""
    address = base_url(target.url)
    async with open_connections(target.api_key, target.silence_s) as connections:
        facts = await find_model(connections.kept, address, target.model)
        route = target.route or (COMPLETIONS if facts.base else CHAT)
        asking = Asking(address, facts.model, route, target.exact, target.extra)
        words = WordList((OPENING,), 0)
        if count_words:
            words = await word_list(LoadClient(connections, asking, clock), address, target.tokenizer)
        yield Session(connections, asking, facts, words, clock)


async def _tick(progress: Progress, watch: Watch) -> None:
    while True:
        watch(progress)
        await asyncio.sleep(TICK_S)
