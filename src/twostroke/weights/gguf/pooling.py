"""How the rows of a text become a vector: the keys of a GGUF file are turned into the files of sentence-transformers.
"""

from __future__ import annotations

import json

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.weights.gguf.keys import Keys

KEY = "pooling_type"
NONE, MEAN, CLS, LAST, RANK = range(5)
"""The values of the key pooling_type, as in llama_pooling_type of llama.cpp."""

MODES = {MEAN: "mean", CLS: "cls", LAST: "lasttoken"}
"""The pooling number in a GGUF file -> the pooling_mode of sentence-transformers."""


def pooling_number(keys: Keys) -> int | None:
    """Returns the value of the file's key pooling_type; None where the file has no such key. Raises CorruptModel."""
    if not keys.has(KEY):
        return None
    number = keys.number(KEY)
    if number not in range(NONE, RANK + 1):
        raise keys.wrong(KEY, "It must be 0 (none), 1 (mean), 2 (cls), 3 (last) or 4 (rank).")
    return int(number)


def sentence_files(task: Task, keys: Keys) -> dict[str, str]:
    """Returns the files of sentence-transformers (modules.json and 1_Pooling/config.json) for an embedding model: name
    -> text. The result is empty for models that make text or scores.

    task: the task of the model's family. Raises CorruptModel, UnsupportedModel.
    """
    number = pooling_number(keys)
    if task is Task.EMBED and number not in MODES:
        raise UnsupportedModel(
            f"{keys.place} does not say how the rows of a text become a vector.",
            why=f"{keys.prefix}{KEY} is {'not there' if number is None else number}; it must be "
            + ", ".join(f"{each} ({mode})" for each, mode in MODES.items())
            + ".",
            fix="Convert the model again from a folder with modules.json, or serve that folder.",
        )
    if task is Task.GENERATE and number == RANK:
        raise CorruptModel(
            f"{keys.place} is said to score pairs of texts, and has no cls.output.weight.",
            why=f"{keys.prefix}{KEY} is 4 (rank), and scores are the product with that tensor.",
            fix="Use a file that was made of the whole reranker.",
        )
    if task is Task.RERANK or number not in MODES:
        return {}
    steps = (("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    listed = [{"type": f"sentence_transformers.models.{kind}", "path": path} for kind, path in steps]
    return {
        "modules.json": json.dumps(listed),
        "1_Pooling/config.json": json.dumps({"pooling_mode": MODES[number]}),
    }
