"""Stands between callers and the core: a prompt becomes n requests, events become text. No thread or clock is used.

    request_id = session.submit(prompt, now)       deltas = session.consume(events, now)

Per completion: any number of Deltas, then exactly one with a finish_reason.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace

from msgspec import Struct, field, structs

from twostroke.cost.explain.guesses import seconds_of_guesses
from twostroke.cost.history.ledger import Ledger
from twostroke.engine.answers.chosen import ChosenAnswers
from twostroke.engine.answers.completion_text import CompletionText, Piece
from twostroke.engine.book import RequestBook
from twostroke.engine.limits import EngineLimits
from twostroke.engine.observer import NoObserver, Observer
from twostroke.engine.resources import NO_RESOURCES, Resources, Seeds
from twostroke.text.detokenizer import CONTEXT_TOKENS, Vocabulary, showing
from twostroke.types.adapter import NO_ADAPTER, TakenAdapter
from twostroke.types.errors import InvalidRequest
from twostroke.types.event import Event, FinishedEvent, PromptEvent, TokenEvent
from twostroke.types.grammar import TokenMask
from twostroke.types.output import Delta, Prompt, Timings
from twostroke.types.request import FinishReason, Request
from twostroke.types.result import TokenLogprob

TEXT_FAULT = "The text of this answer could not be made."


class _Live(Struct):
    """One completion that has not ended."""

    request: Request
    index: int
    text: CompletionText
    first_token_s: float | None = None
    last_token_s: float | None = None
    pieces: list[Piece] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprob] = field(default_factory=list)  # log probabilities that are not delivered yet
    rows_sum: bytes = b""
    ending: tuple[FinishReason, str] | None = None  # the session has decided this end; the scheduler carries it out


class Session:
    """All live requests of one engine. Only the thread that steps the scheduler may use it.

    ledger: gets each completion's beginning and end from the session, and steps from the stepper.
    """

    def __init__(
        self,
        book: RequestBook,
        vocabulary: Vocabulary,
        limits: EngineLimits,
        *,
        seeds: Seeds,
        observer: Observer | None = None,
        ledger: Ledger | None = None,
        resources: Resources = NO_RESOURCES,
    ) -> None:
        self.limits = limits
        self._book = book
        self._vocabulary = vocabulary
        self._seeds = seeds
        self._grammars = resources.grammars
        self.observer = observer or NoObserver()
        self.ledger = ledger or Ledger()
        self._live: dict[str, _Live] = {}
        self._groups: dict[str, list[str]] = {}
        self._choosing: dict[str, ChosenAnswers] = {}
        self._adapters, self._taken = resources.adapters, dict[str, TakenAdapter]()  # keys are request ids
        self._numbers = itertools.count(1)
        self._gaps_s: list[float] = []  # seconds between tokens in the step that is consumed

    @property
    def num_live(self) -> int:
        """The number of completions that are not finished."""
        return len(self._live)

    def new_request_id(self) -> str:
        """Returns an id that no live request has."""
        return next(name for name in map("req-{}".format, self._numbers) if name not in self._groups)

    def named(self, prompt: Prompt) -> Prompt:
        """Returns the prompt with a request id, its own or a new one."""
        return prompt if prompt.request_id else replace(prompt, request_id=self.new_request_id())

    def check(self, prompt: Prompt) -> int:
        """Returns the number of output tokens that `prompt` may have. Raises InvalidRequest. Changes nothing; any
        thread may call it."""
        if self._adapters is not None:
            self._adapters.check(prompt.adapter)
        elif prompt.adapter is not None:
            raise InvalidRequest("This engine has no adapters.", param="model")
        return self.limits.check(prompt)

    def compiling(self, prompt: Prompt) -> Future[tuple[TokenMask, ...]] | None:
        """Returns the compilation of the prompt's grammar; None when nothing is to be compiled. Any thread may call it.

        Raises InvalidRequest, Overloaded. The future may raise the same errors.
        """
        grammar = prompt.params.grammar
        if grammar is None or prompt.masks:
            return None
        if self._grammars is None:
            raise InvalidRequest("This engine has no grammar compiler.", param="grammar")
        return self._grammars.submit(grammar, prompt.params.num_answers)

    def prepare(self, prompt: Prompt) -> Prompt:
        """Check the prompt, compile its grammar if it has one, and wait for the result. Raises InvalidRequest,
        Overloaded."""
        self.check(prompt)
        future = self.compiling(prompt)
        return prompt if future is None else replace(prompt, masks=future.result())

    def submit(self, prompt: Prompt, now: float) -> str:
        """Queue all completions of a prompt and return its request id. When it raises InvalidRequest, none is queued.
        """
        max_tokens, future = self.check(prompt), self.compiling(prompt)
        if future is not None:
            prompt = replace(prompt, masks=future.result())
        if prompt.masks and [mask.num_tokens for mask in prompt.masks] != [0] * prompt.params.num_answers:
            raise InvalidRequest("A prompt with compiled grammars can be run once.", param="grammar")
        name = prompt.request_id or self.new_request_id()
        if name in self._groups:
            raise InvalidRequest(f"A request with the id {name!r} is running.", param="request_id")
        adapter, params = self._take_adapter(name, prompt), prompt.params
        if params.chooses:
            self._choosing[name] = ChosenAnswers(params)
            if params.logprobs is None:
                params = replace(params, logprobs=0)  # log probabilities are needed to compare the answers
        seed = self._seeds.draw() if params.seed is None else params.seed
        ends = frozenset() if params.ignore_eos else self.limits.end_token_ids
        added: list[str] = []
        self._groups[name] = added
        try:
            # All completions have the same prompt, so only the first one brings the prompt's log probabilities.
            others = params if params.prompt_logprobs is None else replace(params, prompt_logprobs=None)
            vocabulary = showing(self._vocabulary, prompt.shown_token_ids)
            for index in range(params.num_answers):
                request = Request(
                    request_id=f"{name}/{index}",
                    group_id=name,
                    prompt_token_ids=prompt.token_ids,
                    params=others if index else params,
                    seed=self._seeds.sibling(seed, index),
                    max_tokens=max_tokens,
                    end_token_ids=ends | frozenset(params.stop_token_ids),
                    arrival_s=now,
                    cache_salt=adapter.salt + prompt.cache_salt,
                    priority=prompt.priority,
                    mask=prompt.masks[index] if prompt.masks else None,
                    objectives=prompt.objectives,
                    speculate=prompt.speculate,
                    adapter=adapter.slot,
                    pooling=prompt.pooling,
                    shown_token_ids=prompt.shown_token_ids,
                    images=prompt.images,
                    disk_s=prompt.disk_s,
                )
                self._book.add(request)
                self.ledger.arrive(request)
                text = CompletionText(vocabulary, params, prompt.token_ids[-CONTEXT_TOKENS:])
                self._live[request.request_id] = _Live(request, index, text)
                added.append(request.request_id)
        except BaseException:
            self.abort(name, now)
            self._end_group(name)
            self._choosing.pop(name, None)
            raise
        return name

    def _take_adapter(self, name: str, prompt: Prompt) -> TakenAdapter:
        if self._adapters is None or prompt.adapter is None:
            return NO_ADAPTER
        taken = self._taken[name] = self._adapters.take(prompt.adapter)
        return taken

    def _end_group(self, name: str) -> None:
        """Forget a request that has no live completion."""
        self._groups.pop(name, None)
        taken = self._taken.pop(name, None)
        if taken is not None and self._adapters is not None:
            self._adapters.give_back(taken.slot)

    def abort(self, request_id: str, now: float) -> list[Delta]:
        """End all live completions of a request. An id that is not live changes nothing."""
        events: list[Event] = []
        for member in list(self._groups.get(request_id, ())):
            if member in self._live:
                events += self._book.abort(member, now)
        return self.consume(events, now)

    def park(self, request_id: str, parked: bool) -> None:
        """Stop computing the live completions of a request, or let them go on. An id that is not live changes nothing.
        """
        move = self._book.parking.park if parked else self._book.parking.go_on
        for member in self._groups.get(request_id, ()):
            if member in self._live:
                move(member)

    def consume(self, events: Sequence[Event], now: float) -> list[Delta]:
        """Turn the scheduler's events into pieces for readers, and end the completions in which a stop string was
        found.

        Must be called with the events of each commit before the next schedule.
        """
        ended: dict[str, FinishedEvent] = {}
        touched: dict[str, _Live] = {}
        for event in events:
            live = self._live.get(event.request_id)
            if live is None:
                continue
            touched[event.request_id] = live
            if isinstance(event, TokenEvent):
                self._take_token(live, event)
            elif isinstance(event, PromptEvent):
                live.prompt_logprobs += event.logprobs
                live.rows_sum = event.rows_sum
            else:
                ending = live.ending
                early = event if ending is None else _ended_before(event, ending[0], live.text.num_tokens)
                ended[event.request_id] = early
        for request_id, live in touched.items():
            if live.ending is not None and request_id not in ended:
                closing_events = self._book.finish(request_id, live.ending[0], now, live.text.num_tokens)
                ended |= {event.request_id: event for event in closing_events if isinstance(event, FinishedEvent)}
        deltas = [self._delta(live, ended.get(request_id)) for request_id, live in touched.items()]
        made = [delta for delta in deltas if delta is not None]
        if self._gaps_s:
            gaps_s, self._gaps_s = self._gaps_s, []
            self.observer.on_next_tokens(gaps_s)
        return [chosen for delta in made for chosen in self._chosen(delta)] if self._choosing else made

    def _chosen(self, delta: Delta) -> Sequence[Delta]:
        """Returns the delta as it is. For a beam search or best_of, returns nothing until all answers have ended, and
        then the best ones."""
        choosing = self._choosing.get(delta.request_id)
        if choosing is None:
            return (delta,)
        chosen = choosing.add(delta)
        if chosen:
            del self._choosing[delta.request_id]
        return chosen

    def _take_token(self, live: _Live, event: TokenEvent) -> None:
        if live.ending is not None:
            return
        self._observe(live, event.at_s)
        try:
            live.pieces.append(live.text.feed(event.token_id, event.logprob))
        except Exception:  # an error in the text of one request must not end the others
            live.ending = (FinishReason.ERROR, TEXT_FAULT)
            return
        if live.text.stop is not None:
            live.ending = (FinishReason.STOP, "")

    def _observe(self, live: _Live, at_s: float) -> None:
        if live.last_token_s is None:
            live.first_token_s = at_s
            self.observer.on_first_token(at_s - live.request.arrival_s)
        else:
            self._gaps_s.append(at_s - live.last_token_s)
        live.last_token_s = at_s

    def _delta(self, live: _Live, end: FinishedEvent | None) -> Delta | None:
        """Returns one piece for everything that happened to this completion; None when there is nothing to show."""
        pieces, live.pieces = live.pieces, []
        if end is None:
            if len(pieces) == 1 and not live.prompt_logprobs:
                return self._of_one(live, pieces[0])
            if not live.prompt_logprobs and not any(piece.text or piece.token_ids for piece in pieces):
                return None
            return self._joined(live, pieces, None, None)
        pieces.append(self._last_piece(live))
        self._forget(live.request)
        if end.stopped_by is not None:
            self._observe(live, end.at_s)  # the end token has no event of its own
        account = self.ledger.finish(end)
        parts = None if account is None else account.parts
        guessed = (0.0, 0.0) if account is None else seconds_of_guesses(account, self.ledger.cost)
        timings = Timings(live.request.arrival_s, end.first_scheduled_s, live.first_token_s, end.at_s, parts, *guessed)
        self.observer.on_finish(end, timings)
        return self._joined(live, pieces, end, timings)

    def _last_piece(self, live: _Live) -> Piece:
        if live.ending is not None and live.ending[0] is FinishReason.ERROR:
            return Piece()
        try:
            return live.text.finish()
        except Exception:  # for the same reason as in _take_token
            live.ending = (FinishReason.ERROR, TEXT_FAULT)
            return Piece()

    def _of_one(self, live: _Live, piece: Piece) -> Delta | None:
        """Returns the delta of one piece of text, which is the case for nearly every token; None for an empty piece."""
        text, token_ids = piece.text, piece.token_ids
        if not (text or token_ids):
            return None
        group_id, num_tokens = live.request.group_id, live.text.num_tokens
        return Delta(group_id, live.index, text, token_ids, piece.logprobs, num_output_tokens=num_tokens)

    def _joined(self, live: _Live, pieces: list[Piece], end: FinishedEvent | None, timings: Timings | None) -> Delta:
        prompt_logprobs, live.prompt_logprobs = tuple(live.prompt_logprobs), []
        delta = Delta(
            request_id=live.request.group_id,
            index=live.index,
            text="".join(piece.text for piece in pieces),
            token_ids=tuple(itertools.chain.from_iterable(piece.token_ids for piece in pieces)),
            logprobs=tuple(itertools.chain.from_iterable(piece.logprobs for piece in pieces)),
            # The end token is generated and paid for, but it has no event and is not delivered.
            num_output_tokens=live.text.num_tokens + (end is not None and end.stopped_by is not None),
            prompt_logprobs=prompt_logprobs,
        )
        if end is None:
            return delta
        reason, error, stop = end.reason, end.error, None
        if live.ending is not None:
            reason, error = live.ending[0], live.ending[1] or None
        if live.text.stop is not None:
            reason, stop = FinishReason.STOP, live.text.stop
        by_id = end.stopped_by if end.stopped_by in live.request.params.stop_token_ids else None
        return structs.replace(
            delta,
            finish_reason=reason,
            stop_reason=stop if stop is not None else by_id,
            error=error,
            num_cached_tokens=end.num_cached_tokens,
            num_preemptions=end.num_preemptions,
            timings=timings,
            end_logprob=end.end_logprob,
            retry_after_s=end.retry_after_s,
            score=end.score,
            rows_sum=live.rows_sum,
        )

    def _forget(self, request: Request) -> None:
        del self._live[request.request_id]
        members = self._groups.get(request.group_id, [])
        if not any(member in self._live for member in members):
            self._end_group(request.group_id)


def _ended_before(event: FinishedEvent, reason: FinishReason, num_tokens: int) -> FinishedEvent:
    """Returns the end of a completion whose text ended with an earlier token of the same step: later tokens do not
    count."""
    return replace(event, reason=reason, num_output_tokens=num_tokens, stopped_by=None, end_logprob=None)
