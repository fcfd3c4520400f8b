"""The log probabilities that a checkpoint computes for texts in float32. Each engine of a comparison is compared with
them.

Weights, K, V and activations are float32 here. The tests in tests/real require that such logits of published
checkpoints differ from those of transformers by at most 1e-4 of their range. So no other engine is needed to compute
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

import numpy as np

from twostroke.lab.bench.fidelity import Fidelity, Heard, fidelity, log_softmax
from twostroke.lab.bench.natural_texts import MOST_TOKENS, OWN_TEXTS, TextSet
from twostroke.ops.operands import F32Array, I32Array
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.stages import StagedModel
from twostroke.text.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False, slots=True)
class Truth:
    """Log probabilities in float32. texts: the texts as token ids. rows: (n, V), for each token of a text but the last,
    the log probabilities of the next token; text after text."""

    texts: list[list[int]]
    rows: F32Array

    def fidelity(self, heard: Sequence[Sequence[Heard]]) -> Fidelity:
        """Returns how far an engine is from float32. heard: for each text and each token but its last, what the engine
        returned for the next token."""
        positions = [each for text in heard for each in text]
        return fidelity(zip(self.rows, positions, strict=True))


def token_ids(folder: Path, texts: TextSet = OWN_TEXTS) -> list[list[int]]:
    """Returns the texts as token ids of the checkpoint's tokenizer, cut into pieces of at most MOST_TOKENS. Each piece
    begins with the tokens that begin a prompt, such as BOS."""
    tokenizer = Tokenizer.from_folder(folder)
    first = tokenizer.encode_prompt("")
    width = MOST_TOKENS - len(first)
    runs = []
    for text in texts.texts:
        ids = tokenizer.encode_prompt(text)[len(first) :]
        runs += [[*first, *ids[at : at + width]] for at in range(0, len(ids), width)][: texts.most_runs]
    return [run for run in runs if len(run) > 1]


@contextmanager
def exact_truth(folder: Path, threads: int, asked: TextSet = OWN_TEXTS) -> Iterator[Truth]:
    """Yields the float32 log probabilities that a folder's checkpoint computes for the texts. They lie in a file
    without a name: rows of a large vocabulary take hundreds of megabytes, which must stay free for the engines that are
    measured. Raises ModelError."""
    texts = token_ids(folder, asked)
    count = sum(len(ids) - 1 for ids in texts)
    with staged_folder(folder, threads) as staged, TemporaryFile() as file:
        rows = np.memmap(file, np.float32, "w+", shape=(count, staged.model.vocab_size))
        first = 0
        for found in _logits(staged, [np.array(ids, np.int32) for ids in texts]):
            rows[first : first + len(found)] = log_softmax(found)
            first += len(found)
        yield Truth(texts, rows)


def _logits(staged: StagedModel, runs: Sequence[I32Array]) -> Iterator[F32Array]:
    """Yields the logits, some rows at a time, for all rows but the last of each token sequence in `runs`."""
    given: list[F32Array] = []
    last = len(staged.stages) - 1
    for index in range(last):
        given = staged.run(index, staged.weights(index), runs, given)
    weights = staged.weights(last)
    for at, ids in enumerate(runs):
        left = len(ids) - 1
        for found in staged.logits(weights, ids, given[at] if given else None):
            yield found[:left]
            left -= min(left, len(found))
