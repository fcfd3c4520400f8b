"""The files that sentence-transformers writes next to a checkpoint. They tell how rows become a vector, and which
prompts there are.

    modules.json                          the modules: Transformer, Pooling, perhaps Dense ones, perhaps Normalize
    1_Pooling/config.json                 which rows are taken
    2_Dense/...                           a product of the pooled vector, see dense_steps.py
    config_sentence_transformers.json     prompts by name
    sentence_bert_config.json             the longest text
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from twostroke.runner.retrieval.dense_steps import DenseStep, read_dense_step
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.pooling import Pooling
from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import parse_object, read_bytes, read_object, without_mark

MODULES = "modules.json"
PROMPTS = "config_sentence_transformers.json"
LENGTHS = "sentence_bert_config.json"
MAX_TEXT_TOKENS = 1 << 24
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")
_MODES = {
    **{"cls": Pooling.CLS, "mean": Pooling.MEAN, "lasttoken": Pooling.LAST},
    "mean_sqrt_len_tokens": Pooling.MEAN_SQRT,
}
_FLAG = "pooling_mode_"
_FLAGS = {"cls_token": "cls", "mean_tokens": "mean"}


@dataclass(frozen=True, slots=True)
class SentenceFiles:
    """What the files of sentence-transformers tell about a model. present: whether modules.json exists. pooling: the
    way of pooling; None where no file names it. include_prompt: False where a mean leaves out the rows of the prompt.
    prompts: text by name. default_prompt: the name of the prompt that is used where the request names none. max_tokens:
    the most tokens of a text; None where no file gives it. lower_case: whether texts are made lower case first. pairs:
    whether the checkpoint scores pairs of texts. dense: the matrices of the modules Dense, by which a pooled vector is
    multiplied, in order."""

    present: bool = False
    pooling: Pooling | None = None
    include_prompt: bool = True
    prompts: Mapping[str, str] = field(default_factory=dict)
    default_prompt: str | None = None
    max_tokens: int | None = None
    lower_case: bool = False
    pairs: bool = False
    dense: tuple[DenseStep, ...] = ()


def read_sentence_files(folder: Path) -> SentenceFiles:
    """Reads the files that sentence-transformers writes. Raises CorruptModel for a broken file, UnsupportedModel for a
    module or a pooling that is not implemented."""
    present = (folder / MODULES).is_file()
    prompts = _fields(folder / PROMPTS)
    lengths = _fields(folder / LENGTHS)
    steps = _known_steps(folder) if present else []
    pooling, include_prompt = _pooling(folder, steps)
    default = prompts.text("default_prompt_name", "") or None
    texts = _prompts(prompts)
    if default is not None and default not in texts:
        raise prompts.wrong("default_prompt_name", "prompts has none of this name.")
    return SentenceFiles(
        present=present,
        pooling=pooling,
        include_prompt=include_prompt,
        prompts=texts,
        default_prompt=default,
        max_tokens=lengths.optional_integer("max_seq_length", 1, MAX_TEXT_TOKENS),
        lower_case=lengths.boolean("do_lower_case", False),
        pairs=prompts.text("model_type", "") == "CrossEncoder",
        dense=_dense(folder, steps),
    )


def _fields(path: Path) -> Fields:
    """Reads the fields of a JSON file. A file that does not exist has none."""
    return Fields(read_object(path) if path.is_file() else {}, path.name)


def _prompts(fields: Fields) -> dict[str, str]:
    group = fields.group("prompts")
    return {} if group is None else {name: group.text(name, "") for name in group.values}


def _known_steps(folder: Path) -> list[tuple[str, str]]:
    """Returns the modules of sentence-transformers that modules.json lists, see _steps. Raises UnsupportedModel for a
    module that is not implemented, and for another order than that of _KNOWN."""
    steps = _steps(folder)
    kinds = [kind for kind, _ in steps]
    unknown = [kind for kind in kinds if kind not in _KNOWN]
    if unknown:
        raise UnsupportedModel(
            f"{MODULES}: the step {unknown[0][:60]!r} is not implemented.",
            why=f"Implemented: {', '.join(_KNOWN)}.",
            fix="Use a model whose vectors are made by these steps alone.",
        )
    if kinds != sorted(kinds, key=_KNOWN.index):
        raise UnsupportedModel(
            f"{MODULES}: the steps {', '.join(kinds)[:80]} stand in another order.",
            why=f"Implemented is the order {', '.join(_KNOWN)}.",
            fix="Use a model whose steps stand in this order.",
        )
    return steps


def _dense(folder: Path, steps: list[tuple[str, str]]) -> tuple[DenseStep, ...]:
    found = tuple(read_dense_step(folder / path) for kind, path in steps if kind == "Dense")
    for first, second in itertools.pairwise(found):
        if second.weight.shape[1] != first.outputs:
            raise CorruptModel(
                f"A step Dense makes {first.outputs:,} numbers, and the next one reads {second.weight.shape[1]:,}.",
                fix="Download the model again.",
            )
    return found


def _pooling(folder: Path, steps: list[tuple[str, str]]) -> tuple[Pooling | None, bool]:
    """Returns the kind of pooling and the setting include_prompt, from the config.json of the module Pooling; None and
    True where there is no such module."""
    place = next((path for kind, path in steps if kind == "Pooling"), None)
    if place is None:
        return None, True
    fields = _fields(folder / place / "config.json")
    return _mode(fields), fields.boolean("include_prompt", True)


def _steps(folder: Path) -> list[tuple[str, str]]:
    """Returns the kind and the folder of each module of sentence-transformers in modules.json, in order."""
    raw: Any = parse_object(b'{"steps": ' + without_mark(read_bytes(folder / MODULES)) + b"}", MODULES)["steps"]
    found = []
    for item in raw if isinstance(raw, list) else [None]:
        fields = Fields(item if isinstance(item, dict) else {}, MODULES)
        kind, path = fields.text("type", "").rsplit(".", 1)[-1], fields.text("path", "")
        plain = PurePosixPath(path)
        if not kind or plain.is_absolute() or ".." in plain.parts:
            raise CorruptModel(
                f"{MODULES} must be a list of steps with a type and a path inside the folder.",
                fix="Download the model again.",
            )
        found.append((kind, path))
    return found


def _mode(fields: Fields) -> Pooling:
    """Returns the pooling that `pooling_mode` names, or that the one true flag stands for. Raises UnsupportedModel."""
    named = fields.text("pooling_mode", "")
    flags = [name.removeprefix(_FLAG) for name, value in fields.values.items() if name.startswith(_FLAG) and value]
    modes = [named] if named else [_FLAGS.get(flag, flag) for flag in flags]
    if len(modes) != 1 or modes[0] not in _MODES:
        raise UnsupportedModel(
            f"The pooling {' and '.join(modes)[:80] or 'of this model'} is not implemented.",
            why=f"Its file must name one of {', '.join(_MODES)}.",
            fix="Use a model with one of these.",
        )
    return _MODES[modes[0]]
