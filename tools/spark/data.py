"""Turns the corpus into batches of chat token ids with a loss weight for each position."""

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from tools.spark.augment import phrase
from tools.spark.corpus import Entry, held_out_set
from tools.spark.tokenizer import ASSISTANT, BOS, DEFAULT_SYSTEM, END, PAD, SYSTEM, USER, token_id
from tools.spark.words import SYSTEM_VARIANTS
from torch import Tensor

ROUND_DIALOGUES = 2048  # drawn at once and sorted by length, so that batches hold little padding
MAX_TOKENS = 1024
REST_SHARE, REST_WEIGHT = 0.15, 0.5  # for positions outside answers: the share that is learnt, and its weight
TIME_STEP, INDEX_STEP = 16, 512  # batches are padded to multiples of these
TURNS = ((0.74, (1, 1)), (0.88, (2, 2)), (0.95, (3, 3)), (0.98, (4, 4)), (1.0, (6, 8)))


@dataclass(frozen=True)
class Sample:
    """One dialogue. ids: its token ids. weights: for each token, the weight of its prediction in the loss (0 = none).
    """

    ids: list[int]
    weights: list[float]


@dataclass(frozen=True)
class Batch:
    """Padded dialogues.

    `ids` [batch, time]; `index` [n]: flat positions whose next token counts; `target`, `weight` [n]: that next token
    and its weight in the loss.
    """

    ids: Tensor
    index: Tensor
    target: Tensor
    weight: Tensor


class Dialogues:
    """Draws dialogues and batches from the corpus."""

    def __init__(
        self, entries: list[Entry], tokenizer: Tokenizer, *, seed: int, batch_tokens: int, short_share: float = 0.5
    ) -> None:
        """`batch_tokens`: the number of padded tokens in a batch. `short_share`: the share of last answers that are cut
        after a few tokens. The first tokens show which answer it is; the rest is learnt well enough from the answers
        that are not cut."""
        self.entries, self.tokenizer, self.seed = entries, tokenizer, seed
        self.batch_tokens, self.short_share = batch_tokens, short_share
        self.held_out = held_out_set(entries)
        self.newline = tokenizer.encode("\n").ids
        self.answers = [tokenizer.encode(entry.answer).ids for entry in entries]
        self.special = {name: token_id(tokenizer, name) for name in (BOS, SYSTEM, USER, ASSISTANT, END, PAD)}

    def _system(self, rng: random.Random) -> str | None:
        """Returns a system prompt: mostly the default one, sometimes another, sometimes None."""
        kind = rng.random()
        if kind < 0.60:
            return DEFAULT_SYSTEM
        return rng.choice(SYSTEM_VARIANTS) if kind < 0.82 else None

    def sample(self, turns: list[int], rng: random.Random) -> Sample:
        """Returns a dialogue that asks for the entries with the indices `turns`, in this order."""
        special, newline = self.special, self.newline
        ids: list[int] = [special[BOS]]
        weights: list[float] = [0.0]

        def put(tokens: list[int], counts: float) -> None:
            ids.extend(tokens)
            if counts:
                weights.extend([counts] * len(tokens))
            else:
                weights.extend(REST_WEIGHT if rng.random() < REST_SHARE else 0.0 for _ in tokens)

        system = self._system(rng)
        if system is not None:
            put([special[SYSTEM], *newline, *self.tokenizer.encode(system).ids, special[END], *newline], 0.0)
        for number, turn in enumerate(turns):
            question = phrase(self.entries[turn], rng, self.held_out)
            answer = self.answers[turn]
            put([special[USER], *newline, *self.tokenizer.encode(question).ids, special[END], *newline], 0.0)
            put([special[ASSISTANT], *newline], 0.0)
            if number == len(turns) - 1 and rng.random() < self.short_share:
                put(answer[: rng.randint(8, 20)], 1.0)
                break
            put([*answer, special[END]], 1.0)
            put(newline, 0.0)
        return Sample(ids[:MAX_TOKENS], weights[:MAX_TOKENS])

    def _round(self, number: int) -> list[list[Sample]]:
        """Returns the batches of one round. Entries come in whole shuffled decks, so that all are used equally often.
        """
        rng = random.Random(f"{self.seed}:{number}")
        deck: list[int] = []
        samples: list[Sample] = []
        for _ in range(ROUND_DIALOGUES):
            kind = rng.random()
            low, high = next(span for limit, span in TURNS if kind < limit)
            count = rng.randint(low, high)
            while len(deck) < count:
                deck += rng.sample(range(len(self.entries)), len(self.entries))
            turns, deck = deck[:count], deck[count:]
            samples.append(self.sample(turns, rng))
        samples.sort(key=lambda sample: -len(sample.ids))
        batches: list[list[Sample]] = []
        while samples:  # the first of the rest is the longest of its batch
            count = max(1, self.batch_tokens // _rounded(len(samples[0].ids), TIME_STEP))
            batches.append(samples[:count])
            samples = samples[count:]
        rng.shuffle(batches)
        return batches

    def batches(self, number: int, index: int) -> Iterator[tuple[int, int, Batch]]:
        """Yields endless (round, index, batch), beginning with round `number` and batch `index`. The round and the
        index are those of the batch."""
        while True:
            for at, samples in enumerate(self._round(number)):
                if at >= index:
                    yield number, at, self.collate(samples)
            number, index = number + 1, 0

    def collate(self, samples: list[Sample]) -> Batch:
        """Pad on the right (harmless: attention is causal) and pick the positions whose next token counts.

        Shapes are rounded so that there are few different ones. oneDNN compiles a kernel for each new shape, which took
        half of the time of a step.
        """
        longest = _rounded(max(len(sample.ids) for sample in samples), TIME_STEP)
        count = max(len(samples), self.batch_tokens // longest)
        ids = torch.full((count, longest), self.special[PAD], dtype=torch.long)
        weights = torch.zeros(count, longest)
        for row, sample in enumerate(samples):
            ids[row, : len(sample.ids)] = torch.tensor(sample.ids)
            weights[row, : len(sample.ids)] = torch.tensor(sample.weights)
        rows, columns = torch.nonzero(weights[:, 1:], as_tuple=True)  # column c is predicted from position c
        fill = _rounded(len(rows), INDEX_STEP) - len(rows)  # rows of no weight
        rows, columns = F.pad(rows, (0, fill)), F.pad(columns, (0, fill))
        weight = weights[rows, columns + 1]
        weight[len(rows) - fill :] = 0.0
        return Batch(ids=ids, index=rows * longest + columns, target=ids[rows, columns + 1], weight=weight)


def _rounded(count: int, step: int) -> int:
    return -(-count // step) * step
