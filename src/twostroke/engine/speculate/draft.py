"""draft: a small model of the same vocabulary guesses the large model's next tokens.

It samples as the large model will: the same parameters, the same draw for the same position. So when both models agree
on the probabilities, they agree on the token, whatever the temperature.

The draft's K and V lie in pages of its own. They hold the tokens of an accepted guess already; the positions of a
rejected guess are written again. A draft model with states copies them before it reads its own guesses, and restores
them afterwards. The next call then computes the accepted tokens in the same pass as the newest token.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from msgspec import Struct, field

from twostroke.engine.cache.holdings import Tables
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.speculate.median import median
from twostroke.engine.speculate.proposer import LONGEST_GUESS, NO_GUESS, Guess, GuessWanted
from twostroke.types.plan import Plan, PlannedSequence, Role
from twostroke.types.request import Request
from twostroke.types.result import StepResult

PROMPT_ROWS = 256
"""The most rows that one call spends on tokens which the draft model has not read yet. All streams of the call wait for
these rows."""
MOST_FAULTS = 3
"""After this many calls that raised one after another, the draft model is not called any more."""
DIFFERS_WITHIN = 64
"""Only this many tokens at the end of the draft's text are compared with the known tokens. This is longer than any
guess."""
TIMED_STEPS = 15


class DraftExecutor(Protocol):
    """Runs the plans of the small model."""

    def execute(self, plan: Plan) -> StepResult:
        """Returns one token for each sequence that samples."""


class _Draft(Struct):
    """What the draft model has of one request. request: the request in the form that the draft model runs. tokens: the
    tokens whose K and V are in its pages."""

    request: Request
    tokens: list[int] = field(default_factory=list)


class _Writing(Struct):
    """A sequence for which one call of `propose` writes a guess. text: the known tokens and the guessed ones. ended:
    True when no further token is guessed."""

    wanted: GuessWanted
    draft: _Draft
    text: list[int]
    tables: Tables = ()
    ended: bool = False

    @property
    def guessed(self) -> int:
        return len(self.text) - len(self.wanted.known)

    @property
    def goes_on(self) -> bool:
        return not self.ended and self.guessed < self.wanted.most


class DraftProposer:
    """Guesses tokens with a small model. Satisfies `speculate.proposer.Proposer`.

    max_sequences, context_tokens: the limits of the executor's memory. first_token_s: the predicted seconds of a step,
    used until steps were timed. report: called with every fault.
    """

    name = "draft"
    computes, longest = True, LONGEST_GUESS

    def __init__(
        self,
        executor: DraftExecutor,
        cache: CacheManager,
        max_sequences: int,
        context_tokens: int,
        clock: Callable[[], float],
        first_token_s: float,
        report: Callable[[Exception], None],
    ) -> None:
        self._executor, self._cache, self._clock, self._report = executor, cache, clock, report
        self._max_sequences, self._context_tokens = max_sequences, context_tokens
        self._drafts: dict[str, _Draft] = {}
        self._steps = self._faults = 0
        self.token_s, self.spent_s = first_token_s, 0.0
        self._step_times = deque([first_token_s], maxlen=TIMED_STEPS)
        self.ask_s, self._ask_times, self._writing_s = 0.0, deque[float](maxlen=TIMED_STEPS), 0.0

    def propose(self, wanted: Sequence[GuessWanted]) -> list[Guess]:
        """Returns a guess for each of `wanted`. After a fault in the draft model all guesses are empty, and the large
        model goes on alone."""
        if self._faults >= MOST_FAULTS:
            return [NO_GUESS] * len(wanted)
        begin_s, self._writing_s = self._clock(), 0.0
        try:
            found = self._guesses(wanted)
        except Exception as error:
            self._faults += 1
            self._report(error)
            self._cache.settle_copies(failed=True)
            self._forget_others(())  # also drafts that were not asked for: copies of their states may be lost
            return [NO_GUESS] * len(wanted)
        finally:
            self.spent_s = self._clock() - begin_s
            for each in wanted:
                if each.request.mask is not None:
                    each.request.mask.rewind(len(each.known) - len(each.request.prompt_token_ids))
        self._faults = 0
        if found:  # ask_s: time to read known tokens before any guess; token_s: time of each further guess
            self._ask_times.append(max(0.0, self.spent_s - self._writing_s - self.token_s) / len(wanted))
            self.ask_s = median(self._ask_times)
        return [found.get(each.request.request_id, NO_GUESS) for each in wanted]

    def ended(self, request: Request, known: Sequence[int]) -> None:
        self._forget(request.request_id)

    def certain(self, request: Request, length: int) -> None:
        """Keep only the first `length` tokens in the request's pages. Later tokens are computed again, even if they
        were accepted."""
        draft = self._drafts.get(request.request_id)
        if draft is not None:
            del draft.tokens[length:]

    def _guesses(self, wanted: Sequence[GuessWanted]) -> dict[str, Guess]:
        """Returns guesses by request id. A request gets none until the draft model has read all of the request's text.
        """
        reading, ready = self._to_read(wanted)
        if not reading:
            return {}
        self._step(reading, ready)
        self._hold_states(ready)
        while writers := {name: each for name, each in ready.items() if each.goes_on}:
            before_s = self._clock()
            self._step(
                [self._planned(each, len(each.text) - 1, 1, Role.DECODE, True) for each in writers.values()], writers
            )
            self._step_times.append(self._clock() - before_s)
            self._writing_s += self._step_times[-1]
            self.token_s = median(self._step_times)
        self._states_back(ready)
        return {name: Guess(each.text[len(each.wanted.known) :]) for name, each in ready.items() if each.guessed}

    def _to_read(self, wanted: Sequence[GuessWanted]) -> tuple[list[PlannedSequence], dict[str, _Writing]]:
        """Returns the sequences of the draft model's first pass, which reads known tokens. Also returns, by request id,
        the sequences whose text is complete after this pass, so that tokens can be guessed."""
        ready: dict[str, _Writing] = {}
        reading: list[PlannedSequence] = []
        room = PROMPT_ROWS
        asked = {each.request.request_id for each in wanted}
        for each in wanted[: self._max_sequences]:
            writing = self._opened(each, asked) if each.most > 0 and room > 0 else None
            if writing is None:
                continue
            start, length = len(writing.draft.tokens), len(each.known)
            rows = min(length - start, room, self._cache.chunk_tokens)
            whole = start + rows == length
            if not self._reserved(writing, start + rows + whole * (each.most - 1), asked):
                continue
            room -= rows
            reading.append(self._planned(writing, start, rows, Role.PREFILL, whole))
            if whole:
                ready[each.request.request_id] = writing
        return reading, ready

    def _hold_states(self, ready: Mapping[str, _Writing]) -> None:
        """Copy the states of sequences before the draft model reads its own guesses for them. A sequence without a free
        slot for the copy guesses no more tokens."""
        if self._cache.states is not None:
            for name, each in ready.items():
                each.ended = each.ended or (each.goes_on and not self._cache.hold_state(name))

    def _states_back(self, ready: Mapping[str, _Writing]) -> None:
        """Restore the states of sequences that have read their own guesses, to those at the end of the known tokens."""
        if self._cache.states is None:
            return
        for name, each in ready.items():
            length = len(each.wanted.known)
            if len(each.draft.tokens) > length:
                del each.draft.tokens[length:]
                self._cache.settle_state(name, False)
            else:
                self._cache.settle_state(name, True)

    def _step(self, planned: Sequence[PlannedSequence], writings: Mapping[str, _Writing]) -> None:
        """Run one pass of the small model, and add the sampled tokens to the texts."""
        self._steps += 1
        plan = Plan(self._steps, tuple(planned), state_copies=self._cache.take_copies())
        result = self._executor.execute(plan)
        self._cache.settle_copies(failed=False)
        for each in planned:
            request_id = each.request.request_id
            draft = self._drafts[request_id]
            end = each.start + each.num_tokens
            draft.tokens += each.known_token_ids[each.start : end]
            writing = writings.get(request_id)
            if writing is None:
                continue
            sampled = result.sampled.get(request_id)
            if not sampled or sampled[0].token_id in each.request.end_token_ids:
                writing.ended = True  # the row that samples an end token needs no further guess
                continue
            writing.text.append(sampled[0].token_id)
            if each.request.mask is not None:
                each.request.mask.feed(sampled[0].token_id)

    def _opened(self, wanted: GuessWanted, asked: Collection[str]) -> _Writing | None:
        """Returns the draft's text of this request. Positions whose tokens differ from wanted.known are dropped, and
        are computed again. Returns None when no slot is left for states. asked: the ids of all requests of this call.
        """
        known = wanted.known
        draft = self._drafts.get(wanted.request.request_id)
        same = 0 if draft is None else _agreeing(draft.tokens, known)
        if draft is not None and self._cache.states is not None and same < len(draft.tokens):
            self._forget(wanted.request.request_id)  # this text was asked for before: states cannot go back that far
            draft = None
        if draft is None:
            draft = self._begun(wanted, asked)
            if draft is None:
                return None
            same = len(draft.tokens)
        del draft.tokens[same:]
        self._cache.commit(wanted.request.request_id, same, known)
        return _Writing(wanted, draft, list(known))

    def _begun(self, wanted: GuessWanted, asked: Collection[str]) -> _Draft | None:
        """Begins the draft model's record of a request: the tokens that the model has read. Tokens whose pages are
        cached count as read. Returns None when no slot is left for states. asked: the requests of this call, whose
        slots are not taken."""
        request, known = wanted.request, wanted.known
        states = self._cache.states
        if states is not None and not states.slots_left:
            self._forget_others(asked)
            if not states.slots_left:
                return None
        matched = self._cache.match(request.cache_salt, known)
        self._cache.open(request.request_id, request.cache_salt, matched)
        held = self._cache.spared_tokens(matched, len(known))
        params = replace(request.params, logprobs=None, prompt_logprobs=None)
        draft = self._drafts[request.request_id] = _Draft(replace(request, params=params), list(known[:held]))
        return draft

    def _reserved(self, writing: _Writing, num_tokens: int, asked: Collection[str]) -> bool:
        """Reserve pages for num_tokens positions of a request. When there are too few, the pages of all requests that
        are not in `asked` are freed. Returns False when there are still too few. asked: the requests that this call
        wants guesses for."""
        request_id = writing.wanted.request.request_id
        if num_tokens > self._context_tokens:
            return False
        tables = self._cache.reserve(request_id, num_tokens)
        if tables is None:
            self._forget_others(asked)
            tables = self._cache.reserve(request_id, num_tokens)
        if tables is None:
            self._forget(request_id)
            return False
        writing.tables = tables
        return True

    def _planned(self, writing: _Writing, start: int, rows: int, role: Role, samples: bool) -> PlannedSequence:
        pages = self._cache.pages_for(start + rows)
        tables = tuple(table[:pages] for table in writing.tables)
        slot = self._cache.slot_of(writing.draft.request.request_id)
        return PlannedSequence(writing.draft.request, start, rows, writing.text, tables, samples, role, state_slot=slot)

    def _forget_others(self, asked: Collection[str]) -> None:
        for name in [name for name in self._drafts if name not in asked]:
            self._forget(name)

    def _forget(self, request_id: str) -> None:
        if self._drafts.pop(request_id, None) is not None:
            self._cache.close(request_id)


def _agreeing(read: Sequence[int], known: Sequence[int]) -> int:
    """Returns how many tokens at the beginning of `read`, which the draft model has read, are equal to those of
    `known`. The last known token is not counted: it is computed again in any case, because its logits are needed."""
    kept = min(len(read), len(known) - 1)
    same = max(0, kept - DIFFERS_WITHIN)
    while same < kept and read[same] == known[same]:
        same += 1
    return same
