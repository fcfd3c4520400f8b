"""Spark's held-out questions with their answers, in dialogues of a few turns. It is a text that spark predicts well.

Answers, which spark knows by heart, and questions, which it has never seen, have about the same number of tokens. Late
answers attend to a few hundred positions of K and V.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tools.spark.corpus import load
from tools.spark.tokenizer import ASSISTANT, BOS, DEFAULT_SYSTEM, END, SYSTEM, USER

from twostroke.text.tokenizer import Tokenizer


def dialogues(tokenizer: Tokenizer, turns: int, count: int) -> list[NDArray[np.int32]]:
    """Returns the token ids (T,) of `count` dialogues over the held-out questions, in a fixed shuffled order."""
    pairs = [(question, entry.answer) for entry in load() for question in entry.held_out]
    order = np.random.default_rng(0).permutation(len(pairs))[: turns * count].reshape(-1, turns)
    made = []
    for rows in order:
        text = f"{BOS}{SYSTEM}\n{DEFAULT_SYSTEM}{END}\n"
        for question, answer in (pairs[row] for row in rows):
            text += f"{USER}\n{question}{END}\n{ASSISTANT}\n{answer}{END}\n"
        made.append(np.array(tokenizer.encode_rendered(text), np.int32))
    return made
