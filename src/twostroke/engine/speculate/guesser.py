"""The guesses of a step: calls proposers, lets the limiter decide, and learns what was accepted.

Before a proposer's guesses are verified in steps, free trials show whether they pay: a guess is only compared with the
tokens that the model samples later. So finding out that a text can be guessed costs no row of the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from twostroke.engine.speculate.acceptance import Acceptance, GuessRecord
from twostroke.engine.speculate.asking import AskRecord, ProbeBudget
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.engine.speculate.proposer import Guess, GuessWanted, Proposer
from twostroke.types.request import Request

LONGEST_REST, LONGEST_COSTLY_REST = 16, 128
"""The most tokens between two trials of a stream whose guesses do not pay. The first number is for proposers that look
tokens up, the second for those that compute them."""
LOST_REST = 32
"""How many tokens pass before a proposer that looks tokens up is called again for a stream, when looking up takes
longer than accepted tokens save."""
PROBE_TOKENS = 2
"""How many tokens a proposer guesses in a probe: a call made while guessing does not pay, to find out whether it pays
again."""
NEVER = 1 << 60
ENOUGH_SEEN = 3
"""A free trial (a guess that is only compared with the tokens sampled later) succeeds as soon as this many of its
tokens were right. The later tokens are not waited for."""


class Stream(NamedTuple):
    """A stream that decodes in the step. known: prompt and output so far. most: the most guesses that it has room for.
    """

    request: Request
    known: Sequence[int]
    most: int


class Guesses(NamedTuple):
    """The guessed tokens of one stream that a step verifies."""

    token_ids: Sequence[int]
    proposer: str


class Totals(Struct):
    """Sums since the beginning. won_s: the seconds that accepted guesses saved, because fewer steps were needed.
    lost_s: the seconds that verifying guesses took."""

    guessed: int = 0
    accepted: int = 0
    steps: int = 0
    won_s: float = 0.0
    lost_s: float = 0.0

    def add(self, guessed: int, accepted: int, won_s: float, lost_s: float) -> None:
        """Add the figures of one step to the sums. won_s: the seconds that accepted guesses saved. lost_s: the seconds
        that guessing and verifying took."""
        self.guessed += guessed
        self.accepted += accepted
        self.steps += 1
        self.won_s += won_s
        self.lost_s += lost_s


class _Trial(Struct):
    """A guess whose outcome is not known yet. at: the number of tokens that the sequence had when the guess was made.
    probe: True when a call of the proposer was predicted to cost more time than it saves. verified: the number of
    tokens of the guess that the next step verifies; 0 when the guess is only compared with the tokens sampled later (a
    free trial)."""

    proposer: Proposer
    guess: Guess
    at: int
    probe: bool = False
    verified: int = 0


class _State(Struct):
    """What the guesser knows of one request. trial: the guess whose outcome is not known yet. record: how often its
    guesses were accepted. next_rest: for how many tokens no proposer is called for it, the next time that guessing does
    not pay."""

    proposers: Sequence[Proposer]
    record: GuessRecord = field(default_factory=GuessRecord)
    trial: _Trial | None = None
    next_rest: int = 1
    last_true: int = 0
    """How many tokens of the request's last guess were accepted."""


_Asking = tuple[Stream, _State]


class Guesser:
    """Makes the guesses of each step and learns from their outcome. ways: the ways to guess that a request may ask for
    by name, each with its proposers in order. The first proposer that has a guess is used; `off` has no proposers.
    default: the way of requests that name none.

    asleep: the requests for which no proposer is called at present, each with the length of its text (in tokens) from
    which on `guess` must get it again. The scheduler only reads this.
    """

    def __init__(
        self, ways: Mapping[str, Sequence[Proposer]], default: str, limiter: GuessLimiter, acceptance: Acceptance
    ) -> None:
        self._ways, self._default = dict(ways), default
        self._limiter, self._acceptance = limiter, acceptance
        self._states: dict[str, _State] = {}
        self._asked: dict[str, AskRecord] = {}
        self._probes = ProbeBudget()
        self._shape: StepShape | None = None
        self._spent_s = 0.0  # seconds that proposers took for the step under way
        self.asleep: dict[str, int] = {}
        self._most_proposers = max(map(len, ways.values()))
        self.totals = Totals()

    def offer(self, way: str, proposers: Sequence[Proposer]) -> None:
        """Add a way to guess under a name. Benchmarks use this."""
        self._ways[way] = proposers
        self._most_proposers = max(self._most_proposers, len(proposers))

    def guess(self, streams: Sequence[Stream], shape: StepShape) -> dict[str, Guesses]:
        """Returns the guesses to verify in the next step, by request id. Most streams have none when guessing does not
        pay."""
        self._shape, self._spent_s = shape, 0.0
        awake: list[_Asking] = []
        for stream in streams:
            state = self._states.get(stream.request.request_id) or self._new_state(stream.request)
            if state.proposers and self._wants_a_guess(state, stream):
                awake.append((stream, state))
        found = self._ask(awake, shape) if awake else ()
        if not found:
            return {}
        chances = [self._acceptance.chances(each.proposer.name, each.guess, state.record) for (_, state), each in found]
        kept: dict[str, Guesses] = {}
        known = self._limiter.times.plain_is_known(shape.streams)
        counts = self._limiter.counts(shape, chances) if known else [0] * len(found)
        for ((stream, state), trial), count in zip(found, counts, strict=True):
            state.trial, trial.verified = trial, count
            if count:
                kept[stream.request.request_id] = Guesses(trial.guess.token_ids[:count], trial.proposer.name)
            if trial.probe or (known and not count):
                self._let_rest(stream, state, trial.proposer, trial.probe)
            elif count:
                state.next_rest = 1
        return kept

    def observe(self, accepted: Mapping[str, int], measured_s: float) -> None:
        """Note the end of the step for which `guess` was last called. accepted: for each request that had guesses, how
        many tokens were accepted.

        measured_s: the seconds that the step took; 0 for a step that nothing can be learned from (cold, faulty, or with
        pieces of an image span).
        """
        shape, self._shape = self._shape, None
        if shape is None:
            return
        self._probes.step(measured_s)
        guessed = 0
        for request_id, came_true in accepted.items():
            state = self._states.get(request_id)
            if state is None or state.trial is None or not state.trial.verified:
                continue
            trial, state.trial = state.trial, None
            guessed += trial.verified
            self._asked[trial.proposer.name].add(came_true)
            state.last_true = came_true
            self._acceptance.observe(trial.proposer.name, trial.guess.cut(trial.verified), came_true, state.record)
        times = self._limiter.times
        if not shape.beside_prompts and measured_s > 0:
            times.observe(shape.streams, shape.position, guessed, measured_s - self._spent_s)
        if guessed:
            hits = sum(accepted.values())
            plain_s = times.seconds(shape.streams, shape.position, 0)
            took_s = times.seconds(shape.streams, shape.position, guessed)
            lost_s = max(0.0, took_s - plain_s) + self._spent_s
            self.totals.add(guessed, hits, hits * plain_s / shape.streams, lost_s)

    def ended(self, request: Request, known: Sequence[int]) -> None:
        """Note that a request has ended, and tell its proposers."""
        state = self._states.pop(request.request_id, None)
        self.asleep.pop(request.request_id, None)
        for proposer in () if state is None else state.proposers:
            proposer.ended(request, known)

    def _new_state(self, request: Request) -> _State:
        way = self._default if request.speculate is None else request.speculate
        state = self._states[request.request_id] = _State(self._ways.get(way, ()))
        if not state.proposers:
            self.asleep[request.request_id] = NEVER
        return state

    def _ask(self, asking: Sequence[_Asking], shape: StepShape) -> list[tuple[_Asking, _Trial]]:
        """Call the proposers in order until each stream has a guess. A proposer is called once for all its streams."""
        found: list[tuple[_Asking, _Trial]] = []
        for place in range(self._most_proposers):
            groups: dict[str, tuple[Proposer, list[_Asking]]] = {}
            for each in asking:
                if place < len(each[1].proposers):
                    proposer = each[1].proposers[place]
                    groups.setdefault(proposer.name, (proposer, []))[1].append(each)
            asking = []
            for proposer, everybody in groups.values():
                asked = self._asked.setdefault(proposer.name, AskRecord())
                members, worth = self._worth_asking_for(proposer, asked, everybody, shape)
                if not members:
                    continue
                asks = [
                    GuessWanted(stream.request, stream.known, min(stream.most, count or PROBE_TOKENS))
                    for (stream, _), count in zip(members, worth, strict=True)
                ]
                guesses = proposer.propose(asks)
                self._spent_s += proposer.spent_s
                for each, guess, count in zip(members, guesses, worth, strict=True):
                    if guess.token_ids:
                        found.append((each, _Trial(proposer, guess, len(each[0].known), not count)))
                        continue
                    asked.add(0)
                    if place + 1 < len(each[1].proposers):
                        asking.append(each)
                    else:
                        self._let_rest(*each, proposer, not count)
        return found

    def _worth_asking_for(
        self, proposer: Proposer, asked: AskRecord, everybody: Sequence[_Asking], shape: StepShape
    ) -> tuple[list[_Asking], list[int]]:
        """Returns the streams for which the proposer is called, and how many tokens it should guess for each. The
        number is 0 when a call does not pay, but the probe budget allows it. For the other streams, no proposer is
        called for some tokens."""
        members: list[_Asking] = []
        worth: list[int] = []
        for each in everybody:
            count = self._worth_asking(proposer, asked, each[1], shape)
            if count or self._probes.allows(proposer.ask_s + PROBE_TOKENS * proposer.token_s):
                members.append(each)
                worth.append(count)
            else:
                self._let_rest(*each, proposer, True)
        return members, worth

    def _worth_asking(self, proposer: Proposer, asked: AskRecord, state: _State, shape: StepShape) -> int:
        """Returns how many tokens the proposer should guess for a stream; 0 when a call does not pay. From a proposer
        that computes its guesses (a draft model), this is the number that saves the most time. From one that only looks
        guesses up, it is the longest guess, if an average call saves more time than it takes."""
        if not proposer.computes:
            brought = max(asked.tokens, state.last_true)
            return proposer.longest if brought * self._limiter.token_s(shape) > proposer.ask_s else 0
        first, later = self._acceptance.rates(proposer.name, state.record)
        asking_s = shape.streams * proposer.ask_s
        most = self._limiter.most(shape, first, later, asking_s, proposer.token_s, proposer.longest)
        return most if asked.is_judged else max(PROBE_TOKENS, most)

    def _wants_a_guess(self, state: _State, stream: Stream) -> bool:
        """Returns True when a proposer should be called for this stream now. If its last guess is a free trial (no step
        verifies it), the result is False until enough tokens were sampled to judge the guess, or one differs. The
        outcome of a finished trial is recorded first."""
        trial = state.trial
        if trial is None:
            return stream.most > 0
        seen = len(stream.known) - trial.at
        came_true = _agreeing(trial.guess.token_ids, stream.known, trial.at)
        if came_true == seen < min(ENOUGH_SEEN, len(trial.guess.token_ids)):
            return False  # true so far
        state.trial = None
        kind = trial.proposer.name
        self._asked[kind].add(came_true)
        state.last_true = came_true
        self._acceptance.observe(kind, trial.guess, came_true, state.record, differs=came_true < seen)
        if came_true and not trial.probe:
            state.next_rest = 1
        return stream.most > 0

    def _let_rest(self, stream: Stream, state: _State, proposer: Proposer, lost: bool) -> None:
        """Call no proposer for this stream for some tokens. Each rest is longer than the one before, so that a text
        that cannot be guessed costs almost nothing. lost: True when calling the proposer does not pay."""
        if lost and not proposer.computes:
            state.next_rest = LOST_REST
        self.asleep[stream.request.request_id] = len(stream.known) + 1 + state.next_rest
        state.next_rest = min(LONGEST_COSTLY_REST if proposer.computes else LONGEST_REST, 2 * state.next_rest)


def _agreeing(guess: Sequence[int], known: Sequence[int], at: int) -> int:
    """Returns how many tokens of a guess are equal to those in `known` from `at` on."""
    count = 0
    for token_id, came in zip(guess, known[at : at + len(guess)], strict=False):
        if token_id != came:
            break
        count += 1
    return count
