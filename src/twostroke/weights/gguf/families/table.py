"""All architectures of GGUF files that are read, by their names in the files.

To add an architecture, add an entry in one of the files of this folder, and a model file.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.container import StoredTensor
from twostroke.weights.gguf.families import (
    classic,
    dbrx,
    deepseek4,
    delta,
    dense,
    encoders,
    experts,
    gemma,
    grok,
    kimi_linear,
    latent,
    mimo2,
    remote,
    rwkv,
    states,
    step35,
    text_inside,
)
from twostroke.weights.gguf.families.family import Family
from twostroke.weights.gguf.header import Value
from twostroke.weights.gguf.keys import Keys

FAMILIES: dict[str, Family] = {
    **dense.FAMILIES,
    **classic.FAMILIES,
    **experts.FAMILIES,
    **dbrx.FAMILIES,
    **latent.FAMILIES,
    **states.FAMILIES,
    **step35.FAMILIES,
    **delta.FAMILIES,
    **deepseek4.FAMILIES,
    **kimi_linear.FAMILIES,
    **mimo2.FAMILIES,
    **grok.FAMILIES,
    **remote.FAMILIES,
    **rwkv.FAMILIES,
    **encoders.FAMILIES,
    **gemma.FAMILIES,
    **text_inside.FAMILIES,
}
"""The families by the name in general.architecture, and the variants in READ_AS, whose names are in no file. If an
architecture has variants, its `chosen` selects one by the file's keys and tensors."""

READ_AS: dict[str, tuple[str, str]] = {
    "mixtral": ("llama", "with experts"),
    "olmo3": ("olmo2", "with windows"),
    "falcon-two-norms": ("falcon", "with two norms"),
    "granitemoeshared": ("granitemoe", "with shared experts"),
    "deepseek3": ("deepseek2", "with sigmoids"),
    "youtu": ("deepseek2", "without experts"),
    "falcon-mamba": ("mamba", "with norms"),
    "glm4v": ("glm4", "inside a model of images"),
    "bert-classifier": ("bert", "with a classifier"),
    "qwen3-reranker": ("qwen3", "with yes and no"),
}
"""Entries whose name stands in no file: for each, the architecture that the file names, and the property that selects
the entry."""

PARTS = ("clip", "adapter", "imatrix")


def known_names() -> list[str]:
    """Returns the architectures that a file may name."""
    return [name for name in FAMILIES if name not in READ_AS]


def family_of(values: Mapping[str, Value], place: str, tensors: Mapping[str, StoredTensor]) -> tuple[str, Family, Keys]:
    """Returns the architecture's name in the file, its entry and its keys. Raises UnsupportedModel."""
    name = values.get("general.architecture")
    known = known_names()
    if not isinstance(name, str) or name not in known:
        word = str(name)[:40]
        near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
        usual = f"The nearest are {', '.join(near)}." if near else "Use a model of one of these families."
        raise UnsupportedModel(
            f"{place}: the architecture {word!r} is not implemented.",
            why=f"general.architecture must be one of the {len(known)} of docs/guides/gguf.md.",
            fix="A file that holds a part of a model (mmproj, an adapter) is used together with the file of a model."
            if word in PARTS
            else usual,
        )
    keys = Keys(values, name, place, tensors)
    family = FAMILIES[name]
    return name, FAMILIES[family.chosen(keys) or name], keys
