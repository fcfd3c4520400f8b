"""Describes in words what lies in a checkpoint or next to it and is not read: nothing is left out silently."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from twostroke.ops.program.model import Model
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.file_names import ENDING, beside
from twostroke.weights.tensor_source import ORDER
from twostroke.weights.tensors import HARMLESS, wanted_tensors, with_prefix

MOST_NAMED = 4
NO_NEWS = re.compile(r"(.*\.)?(position_ids|pooler\..*)")
"""Tensors that need no report when they are not read. Tables of positions are computed again, and embeddings do not
need an encoder's pooler (a layer after it)."""
PREDICTION = re.compile(r"(.*\.)?mtp(_layers)?\..*")
"""Tensors for multi-token prediction. Layers after the model's last layer are also for this."""
_LAYER = re.compile(r"(?:.*\.)?layers\.(\d{1,5})\..*")
TIED_HEADS = frozenset(
    ("lm_head.weight", "head.weight", "output.weight", "output_projection.weight", "decoder.weight", "lm_head.bias")
)
"""Names of output heads. A head that a model does not read is not mentioned, because it is a second copy of the
embedding."""


def tell_unread(model: Model, checkpoint: Checkpoint, guesses: bool, report: Callable[[str], None]) -> None:
    """Reports which tensors of the checkpoint, and which files next to a GGUF file, are not read. guesses: see
    `unread_sentence`."""
    for sentence in (unread_sentence(model, checkpoint, guesses), beside_sentence(checkpoint)):
        if sentence is not None:
            report(sentence)


def unread_sentence(model: Model, checkpoint: Checkpoint, guesses: bool = False) -> str | None:
    """Returns a sentence that names the tensors that no call of the program reads; None where there are none. guesses:
    True where the part of the engine that guesses reads the tensors that predict further tokens.

    Buffers that are computed again, second copies of an embedding and tensors of other ranks are not mentioned.
    """
    wanted = {*model.read_elsewhere, *(tensor.name for tensor in wanted_tensors(model))}
    twice = tuple(begin for begin, _ in model.copies)
    left = sorted(with_prefix(checkpoint, model).names - wanted)
    names = [name for name in left if not (_is_expected(name) or name.startswith(twice))]
    names = [name for name in names if not (guesses and _predicts(name, model))]
    if not names or model.part:
        return None
    groups = Counter(_group(name, model) for name in names)
    shown = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in list(groups.items())[:MOST_NAMED])
    more = f" and {len(groups) - MOST_NAMED} more kinds" if len(groups) > MOST_NAMED else ""
    return f"Tensors of the checkpoint that {model.architecture} does not read here: {len(names)}: {shown}{more}."


def beside_sentence(checkpoint: Checkpoint) -> str | None:
    """Returns a sentence that names projectors and calibration data next to a GGUF file; None where there are none."""
    if not checkpoint.is_gguf:
        return None
    folder = next(iter(checkpoint.shards.values())).path.parent
    try:
        names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() == ENDING)
    except OSError:
        return None
    found = [f"{name} ({beside(name)})" for name in names if beside(name)]
    return f"Next to the model, and not read: {', '.join(found[:MOST_NAMED])}." if found else None


def _group(name: str, model: Model) -> str:
    """Returns the longest of the beginnings in `model.ignored` that this name has, with "*" after it; the name where it
    has none."""
    begins = [entry for entry in model.ignored if entry.endswith(".") and name.startswith(entry)]
    return f"{max(begins, key=len)}*" if begins else name


def _is_expected(name: str) -> bool:
    known = HARMLESS.fullmatch(name) or NO_NEWS.fullmatch(name)
    return bool(known) or name.endswith(ORDER) or name in TIED_HEADS


def _predicts(name: str, model: Model) -> bool:
    layer = _LAYER.fullmatch(name)
    return bool(PREDICTION.fullmatch(name)) or (layer is not None and int(layer[1]) >= model.num_layers)
