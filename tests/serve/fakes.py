"""An engine, a tokenizer and a template that answer by rule, so that tests know every expected byte."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from typing import Any

from msgspec import structs

from twostroke.engine.limits import EngineLimits
from twostroke.server.parts import ServerParts
from twostroke.server.serving import Serving
from twostroke.text.history.abilities import Abilities
from twostroke.text.talk.catalog import FORMATS
from twostroke.text.templates.messages import normalized
from twostroke.text.templates.quoting import Quoting, Spans
from twostroke.types.errors import EngineStopped
from twostroke.types.notes import Notes
from twostroke.types.output import Delta, Prompt
from twostroke.types.recorded.verified_guesses import NO_GUESSES, VerifiedGuesses
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob

END_ID = 256
HERMES = structs.replace(FORMATS["hermes"], thought=None)
VOCAB = 257
CONTEXT = 1024
MODEL = "org/fake-model"
EVERYTHING = 10_000
"""More pieces than any answer of FakeEngine has here."""


@dataclass(frozen=True, slots=True)
class Gauges:
    running: int = 0
    waiting: int = 0
    pages_free: int = 100
    pages_used: int = 0
    pages_cached: int = 0
    waste_tokens: int = 0
    preemptions_total: int = 0
    prefix_query_tokens: int = 0
    prefix_hit_tokens: int = 0
    guesses: VerifiedGuesses = NO_GUESSES


class ByteTokenizer:
    """A tokenizer with one token for each byte; 256 is the end."""

    special_ids = frozenset({END_ID})
    vocab_size = VOCAB
    special_texts: Mapping[str, str] = {}

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        return [self.token_bytes(token_id) for token_id in range(num_rows)]

    def encode_prompt(self, text: str, context_tokens: int | None = None, *, parse_special: bool = True) -> list[int]:
        return list(text.encode())

    def encode_rendered(self, text: str, context_tokens: int | None = None, *, quoted: Spans = ()) -> list[int]:
        return list(text.encode())

    def count_rendered(self, text: str, *, quoted: Spans = ()) -> int:
        return len(text.encode())

    def quoting(self) -> Quoting:
        return Quoting()

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(i for i in token_ids if i < 256).decode(errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        return b"<end>" if token_id == END_ID else bytes([token_id])

    def id_of(self, token: str) -> int | None:
        return END_ID if token == "<end>" else None


class PlainTemplate:
    """A template with role: content, one a line, and the names of tools before them."""

    abilities = Abilities()
    source = "plain"
    variables: frozenset[str] = frozenset()

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        each_text: Callable[[str], str] = str,
        notes: Notes | None = None,
    ) -> str:
        messages = normalized(messages, notes)  # the real template does this first, too
        named = "".join(f"tool {tool['function']['name']}\n" for tool in tools or ())
        return named + "".join(f"{m.get('role')}: {m.get('content')}\n" for m in messages) + "assistant: "

    def joint(self, _role: str) -> str:
        return "\n"

    def written(self, messages: Sequence[Mapping[str, Any]], *, variables: Any = None, **_: Any) -> str:
        return f"{variables or ''}{self.render(messages)}"


class Turnstile(asyncio.Event):
    """A gate for FakeEngine that lets `tokens` pieces through, and as many more as `let` allows. The others wait.

    With it a request runs as long as a test wants, however slow or quick the machine is.
    """

    def __init__(self, tokens: int = 0) -> None:
        super().__init__()
        self._passes = asyncio.Semaphore(tokens)

    async def wait(self) -> bool:  # type: ignore[override]
        """Waits until one piece may pass."""
        await self._passes.acquire()
        return True

    def let(self, loop: asyncio.AbstractEventLoop, tokens: int = EVERYTHING) -> None:
        """Lets this many more pieces through. loop: the server's loop; any thread may call."""

        def release() -> None:
            for _ in range(tokens):
                self._passes.release()

        loop.call_soon_threadsafe(release)


class FakeReader:
    """The pieces of a generator, for which a task asks one after the other. No piece is taken while the request rests.

    told: records each time that the request must rest or go on, as long as it runs.
    """

    def __init__(
        self, deltas: AsyncGenerator[Delta, None], wake: Callable[[], None], told: Callable[[bool], None]
    ) -> None:
        self.done = False
        self._deltas, self._wake, self._told = deltas, wake, told
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._mail: deque[Delta] = deque()
        self._ended: Exception | bool = False
        self._task = asyncio.create_task(self._run())

    def take(self) -> Delta | None:
        if self._mail:
            return self._mail.popleft()
        if isinstance(self._ended, Exception):
            raise self._ended
        self.done = self._ended
        return None

    def rest(self) -> None:
        """Does nothing, because nobody counts how long the reader was away."""

    def park(self, parked: bool) -> None:
        """Rests, or goes on. Like the real engine, it does not know a request that has ended."""
        if self._ended:
            return
        self._told(parked)
        if parked:
            self._goes_on.clear()
        else:
            self._goes_on.set()

    def close(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        try:
            async with aclosing(self._deltas):
                async for delta in self._deltas:
                    self._mail.append(delta)
                    self._wake()
                    await self._goes_on.wait()
            self._ended = True
        except Exception as error:
            self._ended = error
        self._wake()


class FakeEngine:
    """Completion i of any prompt is `answer`, in upper case for odd i, with one token for each byte, then the end.

    gate: awaited before each token. error_after: the number of pieces after which `error` is raised. peak: the most
    live at once. parked: the calls about readers that stopped or went on.
    """

    def __init__(self, answer: str = "hello world") -> None:
        self.answer = answer
        self.limits = EngineLimits(CONTEXT, VOCAB, pool_tokens=4096, end_token_ids=frozenset({END_ID}))
        self.alive = True
        self.live = 0
        self.peak = 0
        self.closed_early = 0
        self.prompts: list[Prompt] = []
        self.waiting = 0
        self.parked: list[bool] = []
        self.token_s = 0.0
        self.gate: asyncio.Event | None = None
        self.error: Exception | None = None
        self.error_after = 0
        self.last: Delta | None = None

    async def start(self) -> None:
        self.alive = True

    async def stop(self) -> None:
        self.alive = False

    def gauges(self) -> Gauges:
        return Gauges(running=self.live, waiting=self.waiting, pages_free=100 - self.live, pages_used=self.live)

    def check(self, prompt: Prompt) -> None:
        self.limits.check(prompt)

    def room(self, prompt_tokens: int) -> int:
        return self.limits.most_tokens - prompt_tokens

    async def prepare(self, prompt: Prompt) -> Prompt:
        return prompt

    def open(self, prompt: Prompt, wake: Callable[[], None]) -> FakeReader:
        return FakeReader(self._stream(prompt), wake, self.parked.append)

    async def _stream(self, prompt: Prompt) -> AsyncGenerator[Delta, None]:
        if not self.alive:
            raise EngineStopped("The engine is stopped.")
        self.prompts.append(prompt)
        self.live += prompt.params.n
        self.peak = max(self.peak, self.live)
        done = False
        try:
            for count, delta in enumerate(self._deltas(prompt)):
                if self.error is not None and count >= self.error_after:
                    raise self.error
                if self.gate is not None:
                    await self.gate.wait()
                await asyncio.sleep(self.token_s)
                yield delta
            done = True
        finally:
            self.live -= prompt.params.n
            self.closed_early += not done

    def _deltas(self, prompt: Prompt) -> list[Delta]:
        """The pieces of the completions in turn, as in the real engine's steps."""
        params = prompt.params
        made = []
        for index in range(params.n):
            text = (self.answer.upper() if index % 2 else self.answer).encode()
            ids = [*text, END_ID][: params.max_tokens]
            made.append([self._delta(prompt, index, ids, place) for place in range(len(ids))])
            if params.max_tokens == 0:
                made[-1] = [Delta(prompt.request_id or "", index, "", finish_reason=FinishReason.LENGTH)]
        rows = [row[place] for place in range(max(map(len, made))) for row in made if place < len(row)]
        return [*self._scores(prompt), *rows]

    def _scores(self, prompt: Prompt) -> list[Delta]:
        """The scores in two pieces, as from a prompt in two chunks."""
        top = prompt.params.prompt_logprobs
        if top is None:
            return []
        scores = tuple(TokenLogprob(i, -i / 100, ((120, -0.25),)[:top]) for i in prompt.token_ids[1:])
        half = len(scores) // 2
        return [Delta(prompt.request_id or "", 0, "", prompt_logprobs=part) for part in (scores[:half], scores[half:])]

    def _delta(self, prompt: Prompt, index: int, ids: Sequence[int], place: int) -> Delta:
        token = ids[place]
        logprobs: tuple[TokenLogprob, ...] = ()
        if prompt.params.logprobs is not None:
            best = ((token, -0.5), (120, -1.5), (0xE9, -2.5), (0xEA, -3.5), (121, float("-inf")))
            logprobs = (TokenLogprob(token, -0.5, best[: prompt.params.logprobs]),)
        delta = Delta(
            prompt.request_id or "",
            index,
            "" if token == END_ID else chr(token),
            (token,),
            logprobs,
            num_output_tokens=place + 1,
        )
        if place + 1 < len(ids):
            return delta
        if self.last is not None:
            return structs.replace(self.last, index=index)
        reason = FinishReason.STOP if token == END_ID else FinishReason.LENGTH
        return structs.replace(delta, finish_reason=reason, num_cached_tokens=3 if index == 0 else 99)


def fake_parts(engine: FakeEngine | None = None, **changes: Any) -> ServerParts:
    """The parts of a whole server around the fakes."""
    serving = Serving(
        engine=engine or FakeEngine(),
        tokenizer=ByteTokenizer(),
        template=PlainTemplate(),
        served_name=MODEL,
        context_tokens=CONTEXT,
        version="1.2.3",
        created_s=1_700_000_000,
        format=HERMES,
    )
    return changed(ServerParts(serving), **changes)


def changed(parts: ServerParts, **changes: Any) -> ServerParts:
    """The parts with other values of fields, whichever of them has each field."""
    for group in fields(parts):
        own = getattr(parts, group.name)
        names = changes.keys() & {each.name for each in fields(own)}
        if names:
            own = replace(own, **{name: changes.pop(name) for name in sorted(names)})
            parts = replace(parts, **{group.name: own})
    assert not changes, f"there are no such fields: {', '.join(changes)}"
    return parts
