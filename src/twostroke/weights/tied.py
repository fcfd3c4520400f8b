"""Finds out whether a checkpoint has a head of its own next to its embedding.

If tie_word_embeddings is true and the checkpoint holds an lm_head.weight that differs from the embedding, the file
counts, as in transformers: the head is not tied. If the two are equal, the second copy is left out.

Two equal copies must be read to their ends, gigabytes of a large model. So the answer is kept in a small file under the
checkpoint's fingerprint, and the next start of the same files reads it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from twostroke.ops.products.linear import Linear
from twostroke.ops.program.model import Model
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.copies import same_numbers
from twostroke.weights.packed.fingerprint import fingerprint
from twostroke.weights.tensors import with_prefix

HEAD = "lm_head.weight"


def has_other_head(checkpoint: Checkpoint, model: Model, kept: Path | None = None) -> bool:
    """Returns True where the checkpoint has a head that differs from its embedding, in shape, in type or in a bit.

    model: a model whose head is its embedding. kept: the folder of answers; None to compare each time. Raises
    CorruptModel.
    """
    stored, table = with_prefix(checkpoint, model), _embedding(model)
    if HEAD not in stored.names or table not in stored.names:
        return False
    embedding, head = stored.info(table), stored.info(HEAD)
    if (embedding.dtype, embedding.shape) != (head.dtype, head.shape):
        return True
    if kept is None:
        return not same_numbers(stored, table, HEAD)
    place = kept / f"{fingerprint(checkpoint)}.head"
    known = _ANSWERS.get(_text_of(place))
    if known is None:
        known = not same_numbers(stored, table, HEAD)
        _keep(place, next(text for text, answer in _ANSWERS.items() if answer == known))
    return known


_ANSWERS = {"equal\n": False, "other\n": True}


def _text_of(place: Path) -> str:
    try:
        return place.read_text()
    except (OSError, ValueError):
        return ""


def _keep(place: Path, text: str) -> None:
    """Writes whether the head equals the embedding into the file `place`. If the file cannot be written, the next start
    of the engine compares the two tensors again."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_suffix(f".partial-{os.getpid()}")
        partial.write_text(text)
        partial.replace(place)


def _embedding(model: Model) -> str:
    """Returns the name of the tensor of the last product, which makes the logits."""
    last = next(call for call in reversed(model.plain.head) if isinstance(call, Linear))
    return last.weight.parts[0].name
