"""Sampling on the device that has the logits. The sampling parameters of each row are sent with the step's inputs, and
tokens are sent back.

A row of a guess is sampled as if the guess was accepted, in the same step as the others. Its token is used only if the
guess is accepted. The host gets logits only of sequences that a device cannot sample (`why_host`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from twostroke.ops.attention.token_weights import Weigh
from twostroke.ops.operands import F32Array, I32Array, U8Array
from twostroke.ops.step_memory import StepSizes
from twostroke.runner.device.rows import (
    MOST_TOP,
    NOT_ASKED,
    SAMPLE_INPUT,
    SAMPLE_RESULT,
    Rows,
    asked_of,
    lists_of,
    scored,
    scores_of,
    token_of,
    why_host,
    with_lists,
)
from twostroke.runner.samplers import Sampled, Tokens, note, scores_here
from twostroke.runner.sampling.changes import changes_of
from twostroke.runner.sampling.random_draw import WORD, draws
from twostroke.runner.sampling.verify import FAULTS, as_if_right, sample_rows
from twostroke.types.plan import Plan, PlannedSequence
from twostroke.types.result import SampledToken, TokenLogprob

NO_ROOM = "lists that the inputs' block has no room for"
NOT_FINITE = "no largest logit, or one that is not finite"
MANY_TOP = f"more than {MOST_TOP} likely tokens of a prompt's token"


class SamplingForward(Protocol):
    """A model on a device that also samples. It runs a step and returns tokens, and logits where the host needs them.
    """

    @property
    def asked_bytes(self) -> int:
        """The bytes that the inputs of a step reserve for sampling: for the records of SAMPLE_INPUT, and after them for
        the lists of penalized, biased, banned and allowed tokens."""

    def sampled(self, asked: Rows, lists: U8Array, row_results: Rows, sizes: StepSizes) -> None:
        """Runs the step and samples each logit row. asked: (R,) records of SAMPLE_INPUT. lists: the bytes of the lists
        of tokens that these records refer to. row_results: (R,) records of SAMPLE_RESULT, which are filled in."""

    def scored(self, rows: I32Array, asked: Rows, row_results: Rows, sizes: StepSizes) -> None:
        """Computes results, as `sampled` does, for the given rows (R,) of the last step, without running the step
        again."""

    def logits_at(self, begin: int, end: int) -> F32Array:
        """Returns the logits (end - begin, V) of rows [begin, end) of the last step."""

    def logits(self, rows: I32Array, sizes: StepSizes) -> F32Array:
        """Returns the logits (R, V) of rows (R,) of the last step, as `Forward.logits` does."""


@dataclass(frozen=True, slots=True)
class SampledRows:
    """A sequence that samples in a step. first: the index of its first row of logits. This row belongs to the last
    known token; the rows of guesses follow. changed: for each row, whether the request changes its logits. reason: why
    it is sampled on the host; None where the device samples it. fault: the error of its token mask."""

    sequence: PlannedSequence
    first: int
    changed: tuple[bool, ...] = ()
    reason: str | None = None
    fault: ValueError | None = None


@dataclass(frozen=True, slots=True)
class WantedRows:
    """The inputs of a step's sampling. found: the sequences that sample. asked: (R,) records of SAMPLE_INPUT, one for
    each row of logits. lists: the bytes of the lists of tokens that the records refer to."""

    found: list[SampledRows]
    asked: Rows
    lists: U8Array


@dataclass(slots=True)
class _Lists:
    """The lists of tokens (penalized, biased, banned, allowed) that the rows of a step refer to, to be stored one after
    the other after the records of SAMPLE_INPUT. Equal lists are stored once. end: where the last list ends, in bytes
    from the first record on. room: the largest value that `end` may have."""

    end: int
    room: int
    parts: list[U8Array] = field(default_factory=list)
    places: dict[bytes, int] = field(default_factory=dict)

    def add(self, rows: Sequence[bytes], lists: Sequence[Sequence[Rows]]) -> list[bytes] | None:
        """Stores the lists of penalized, biased, banned and allowed tokens of some logit rows. rows: the records of
        these rows. Returns the records, each with references to its lists. Returns None, and stores nothing, where
        there is no room."""
        if not any(lists):
            return list(rows)
        contents = [[each.tobytes() for each in of_row] for of_row in lists]
        new = {each for of_row in contents for each in of_row} - self.places.keys()
        if self.end + sum(map(len, new)) > self.room:
            return None
        found: list[bytes] = []
        for row, of_row, entries in zip(rows, contents, lists, strict=True):
            where: list[int] = []
            for content, each in zip(of_row, entries, strict=True):
                if content not in self.places:
                    self.places[content] = self.end
                    self.parts.append(each.view(np.uint8))
                    self.end += len(content)
                where += [self.places[content], len(each)]
            found.append(with_lists(row, where) if where else row)
        return found

    def joined(self) -> U8Array:
        return np.concatenate([np.empty(0, np.uint8), *self.parts])


class DeviceSampler:
    """Samples on the device, and on the host those sequences that a device cannot sample. Satisfies StepSampler. weigh:
    makes the weights of tokens for the rows that are sampled on the host. reasons: how many sequences were sampled on
    the host, by reason."""

    def __init__(self, forward: SamplingForward, vocabulary: int, weigh: Weigh) -> None:
        self._forward, self._vocabulary, self.weigh = forward, vocabulary, weigh
        self.reasons: dict[str, int] = {}

    def forward(self, plan: Plan, sizes: StepSizes) -> tuple[list[SampledRows], Rows]:
        """Runs the step. Returns the sequences that sample, and the device's results for their rows."""
        wanted = self.wanted(plan.sequences)
        row_results = np.zeros(len(wanted.asked), SAMPLE_RESULT)
        self._forward.sampled(wanted.asked, wanted.lists, row_results, sizes)
        return wanted.found, row_results

    def wanted(self, sequences: Sequence[PlannedSequence], spare: int = 0) -> WantedRows:
        """Returns the device's sampling inputs for these sequences. spare: the number of bytes for other data that the
        block of inputs has between the records of SAMPLE_INPUT and the lists of tokens."""
        asked, found = list[bytes](), list[SampledRows]()
        num_rows = sum([each.sampled_rows for each in sequences])
        lists = _Lists(num_rows * SAMPLE_INPUT.itemsize + spare, self._forward.asked_bytes)
        for sequence in sequences:
            if sequence.samples:
                found.append(self._ask(sequence, asked, lists))
                asked += [NOT_ASKED] * (found[-1].first + sequence.sampled_rows - len(asked))
        rows: Rows = np.frombuffer(b"".join(asked), SAMPLE_INPUT) if asked else np.empty(0, SAMPLE_INPUT)
        return WantedRows(found, rows, lists.joined())

    def choose(self, plan: Plan, found: tuple[list[SampledRows], Rows]) -> Sampled:
        del plan
        sampled, (sequences, row_results) = Sampled({}, {}), found
        token_ids: list[int] = row_results["token"].tolist()
        is_finite = (np.isfinite(row_results["best"]) & np.isfinite(row_results["raw_best"])).tolist()
        for each in sequences:
            request = each.sequence.request
            is_alone = len(each.changed) == 1 and is_finite[each.first]  # no fault, and not sampled on the host
            if is_alone and request.num_top is None:
                sampled.tokens[request.request_id] = (SampledToken(token_ids[each.first]),)
            else:
                note(sampled, request.request_id, partial(self._tokens, each, row_results))
        return sampled

    def score(self, rows: I32Array, token_ids: Sequence[int], num_top: int, sizes: StepSizes) -> list[TokenLogprob]:
        reason = MANY_TOP
        if num_top <= MOST_TOP:
            row_results, reason = np.zeros(len(rows), SAMPLE_RESULT), NOT_FINITE
            self._forward.scored(rows, scores_of(token_ids, num_top), row_results, sizes)
            if np.isfinite(row_results["raw_best"]).all():
                return [scored(each, num_top, self._vocabulary) for each in row_results]
        self._count(reason)
        return scores_here(self.weigh, self._forward.logits(rows, sizes), token_ids, num_top)

    def _ask(self, sequence: PlannedSequence, asked: list[bytes], lists: _Lists) -> SampledRows:
        """Appends the sampling inputs of a sequence's rows to `asked`. It appends nothing for a sequence that the host
        samples."""
        first, changed, rows, entries = len(asked), list[bool](), list[bytes](), list[list[Rows]]()
        reason = None
        try:
            alone = None if sequence.draft_token_ids else ((sequence, changes_of(sequence)),)
            for each, changes in alone or as_if_right(sequence):  # the loop runs to the end, whatever the rows ask
                reason = reason or why_host(each, changes, self._vocabulary)
                if reason is None:
                    changed.append(changes is not None)
                    rows.append(asked_of(each, changes))
                    entries.append([] if changes is None else lists_of(changes, self._vocabulary))
        except ValueError as error:
            return SampledRows(sequence, first, fault=error)
        found = lists.add(rows, entries) if reason is None else None
        if found is None:
            return SampledRows(sequence, first, reason=reason or NO_ROOM)
        asked += found
        return SampledRows(sequence, first, tuple(changed))

    def wanted_next(self, before: WantedRows, sequences: Sequence[PlannedSequence]) -> WantedRows | None:
        """Returns what `wanted` would return for the next step of the same sequences, but faster: it copies the last
        step's inputs and makes new random draws. before: those inputs, one row for each sequence.

        Returns None where a request changes its logits, because such changes may depend on the token before, which the
        host does not know yet.
        """
        if before.asked["changed"].any():
            return None
        asked = before.asked.copy()
        seeds = np.array([each.request.seed & WORD for each in sequences], np.uint64)
        positions = np.array([each.num_output_tokens for each in sequences], np.uint64)
        asked["draw"] = np.where(asked["drawn"] != 0, draws(seeds, positions), np.uint64(0))
        return WantedRows(before.found, asked, before.lists)

    def has_all(self, found: Sequence[SampledRows], row_results: Rows) -> bool:
        """Returns whether the device's results are enough to choose the tokens of all these sequences, so that the host
        needs no logits."""
        return all(each.reason is None for each in found) and bool(np.isfinite(row_results["raw_best"]).all())

    def _tokens(self, rows: SampledRows, row_results: Rows) -> Tokens:
        if rows.fault is not None:
            raise rows.fault
        if rows.reason is not None:
            return self._here(rows, rows.reason)
        guesses, found = rows.sequence.draft_token_ids, list[SampledToken]()
        for place, changed in enumerate(rows.changed):
            if place and found[-1].token_id != guesses[place - 1]:
                break
            each = row_results[rows.first + place]
            if not np.isfinite(each["raw_best"]):
                return self._here(rows, NOT_FINITE)
            try:
                found.append(token_of(each, rows.sequence, changed, self._vocabulary))
            except FAULTS:
                if not place:
                    raise
                break  # left to the step that reaches this row without a guess, as in sample_rows
        return tuple(found)

    def _here(self, rows: SampledRows, reason: str) -> Tokens:
        self._count(reason)
        logits = self._forward.logits_at(rows.first, rows.first + rows.sequence.sampled_rows)
        return sample_rows(self.weigh, logits, rows.sequence)

    def _count(self, reason: str) -> None:
        self.reasons[reason] = self.reasons.get(reason, 0) + 1
