"""Finds the names that a checkpoint's tensors have in a GGUF file. The tables that read GGUF files are used in the
other direction."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from twostroke.types.errors import UnsupportedModel
from twostroke.weights.gguf.families.family import Config, Family, Joined, Place, Shape
from twostroke.weights.gguf.families.kimi_linear import of_heads, taps
from twostroke.weights.gguf.families.names import filters, flat
from twostroke.weights.gguf.families.table import FAMILIES, READ_AS

FIX = "Convert it with llama.cpp's own converter, or write --to int4, gptq or awq."
_ENDING = re.compile(r"\.(weight|bias)$")
_BIASES = (".weight", ".bias")


@dataclass(frozen=True, eq=False, slots=True)
class StoredPlan:
    """How one tensor of the GGUF file is made from the checkpoint. name: its name in the file. ours: the checkpoint's
    tensors from which it is made: one, or one for each expert. shape: its shape in the file, rows first. stem: its name
    in the layer without an ending such as .weight. layer: -1 for a tensor outside the layers.

    place: for a tensor that is stored by itself, the name in the checkpoint and the changes of its rows. turned:
    whether it is stored transposed. less_one: whether the file has w + 1 for each number w of the checkpoint, so that
    readers subtract 1. joined: set where several tensors of the file are parts of one checkpoint tensor, which it
    describes. piece: this tensor's index among these parts. rows: the number of rows of each part.
    """

    name: str
    ours: tuple[str, ...]
    shape: Shape
    stem: str
    layer: int
    place: Place
    turned: bool = False
    less_one: bool = False
    joined: Joined | None = None
    piece: int = 0
    rows: tuple[int, ...] = ()


def entries_to_write(config: Mapping[str, Any]) -> list[tuple[str, str, Family]]:
    """Returns the ways in which a config's architecture can be written: (entry of the reader's tables,
    general.architecture, the entry's family). There may be several. Raises UnsupportedModel where there is none."""
    named = str((config.get("architectures") or [""])[0])
    sought = "LlamaForCausalLM" if named == "MistralForCausalLM" else named
    written = {name: family for name, family in FAMILIES.items() if family.written}
    found = [(name, family) for name, family in written.items() if family.hf == sought]
    if not found:
        known = sorted({family.hf for family in written.values()})
        raise UnsupportedModel(
            f"A {named[:60]} cannot be written as GGUF.",
            why=f"Files of {len(known)} architectures are written: {', '.join(known)}.",
            fix=FIX,
        )
    return [(name, READ_AS[name][0] if name in READ_AS else name, family) for name, family in found]


def plan_tensors(family: Family, config: Config, layers: int, shapes: Mapping[str, Shape]) -> dict[str, StoredPlan]:
    """Returns how each tensor of the file is made, by its name in the file. shapes: the shapes of the checkpoint's
    tensors. Tensors of the checkpoint that have no place in the file are left out."""
    found: dict[str, StoredPlan] = {}
    for layer in range(-1, layers):
        prefix = "" if layer < 0 else f"{family.layers}{layer}."
        before = "" if layer < 0 else f"blk.{layer}."
        table = family.outer if layer < 0 else family.layer
        mixture = any(".experts." in name or "block_sparse_moe" in name for name in shapes if name.startswith(prefix))
        taken: set[str] = set()
        for plan in _joined(family, config, prefix, shapes, mixture) if before else ():
            taken.update(plan.ours)
            found[before + plan.name] = replace(plan, name=before + plan.name, layer=layer)
        for plan in _own(family, table, prefix, shapes, mixture):
            if not taken.intersection(plan.ours):
                taken.update(plan.ours)
                found[before + plan.name] = replace(plan, name=before + plan.name, layer=layer)
    return found


def _own(
    family: Family, table: Mapping[str, str | Place], prefix: str, shapes: Mapping[str, Shape], mixture: bool
) -> Iterator[StoredPlan]:
    """Yields the tensors of the file that are made of one tensor of the checkpoint, or of one for each expert. Where
    GGUF has two names for a tensor of the checkpoint, the name that llama.cpp's converter writes comes first."""
    for rest, said in sorted(table.items(), key=lambda item: _rank(item[0], mixture)):
        place = said if isinstance(said, Place) else Place(said)
        ending = _ENDING.search(rest)
        stem = rest[: ending.start()] if ending else rest
        if ending:
            names = [(rest, place.name if place.whole else place.name + ending[0])]
        elif place.whole:
            own = _ENDING.search(place.name)
            names = [(rest + (own[0] if own else ""), place.name)]
        else:
            names = [(rest + each, place.name + each) for each in _BIASES if rest + each not in table]
        for stored, ours in names:
            plan = _plan(family, stored, prefix + ours, place, stem, shapes)
            if plan is not None:
                yield plan


def _rank(rest: str, mixture: bool) -> tuple[bool, bool]:
    """Returns the sort key of a name in a family's table. Where the table has two names for one tensor of the
    checkpoint, the one that comes first is written. ffn_norm comes late, because llama.cpp reads post_attention_norm in
    its place where a table has both. mixture: whether the layer has experts; then names with _shexp come first."""
    return rest in ("exp_probs_b", "ffn_norm"), ("_shexp" in rest) != mixture


def _plan(
    family: Family, stored: str, ours: str, place: Place, stem: str, shapes: Mapping[str, Shape]
) -> StoredPlan | None:
    names: tuple[str, ...] = (ours,)
    if "{}" in ours:
        count = next(index for index in range(1 << 20) if ours.format(index) not in shapes)
        names = tuple(ours.format(index) for index in range(count))
    if not names or names[0] not in shapes or any(shapes[name] != shapes[names[0]] for name in names):
        return None
    weight = stored.endswith(".weight")
    turned = weight and stem in family.turned
    shape = shapes[names[0]]
    shape = shape[::-1] if turned else shape
    shape = (len(names), *shape) if "{}" in ours else _unshaped(place, stem, shape)
    return StoredPlan(stored, names, shape, stem, -1, place, turned, weight and stem in family.less_one)


def _unshaped(place: Place, stem: str, shape: Shape) -> Shape:
    """Returns the shape that a tensor gets in the GGUF file. shape: its shape in the checkpoint."""
    if place.shape is None:
        return shape
    if place.shape is filters:
        return shape[0], shape[2]
    if place.shape is taps:
        return 1, shape[0], 1, shape[2]
    if place.shape is of_heads:
        return shape
    if place.shape is flat:
        return (*shape, 1) if stem in ("ssm_a", "ssm_d") else shape
    return shape[-1:]


def _of_latent(config: Config, rows: int) -> tuple[int, ...]:
    heads = int(config["num_attention_heads"])
    keys = heads * int(config["qk_nope_head_dim"])
    return keys, rows - keys


def _of_delta(config: Config, rows: int) -> tuple[int, ...]:
    values = int(config["linear_num_value_heads"]) * int(config["linear_value_head_dim"])
    return rows - values, values


SHARES: Mapping[str, Callable[[Config, int], tuple[int, ...]]] = {
    "self_attn.kv_b_proj.weight": _of_latent,
    "linear_attn.in_proj_qkvz.weight": _of_delta,
}
"""For a tensor of the checkpoint that becomes several tensors of the file with different numbers of rows: a function of
the config and the number of all rows, which returns the number of rows of each part."""


def _joined(
    family: Family, config: Config, prefix: str, shapes: Mapping[str, Shape], mixture: bool
) -> Iterator[StoredPlan]:
    """Yields the tensors of the file that are parts of one tensor of the checkpoint, such as q, k and v of a joined
    qkv. Where the family's table has two entries for a tensor, the entry that suits the layer is taken. mixture:
    whether the layer has experts."""
    chosen: dict[str, Joined] = {}
    for joined in sorted(family.joined, key=lambda each: ("_shexp" in each.pieces[0]) != mixture):
        if prefix + joined.name in shapes:
            chosen.setdefault(prefix + joined.name, joined)
    for ours, joined in chosen.items():
        turned = joined.turned
        shape = shapes[ours]
        shape = (*shape[:-2], shape[-1], shape[-2]) if turned else shape
        bias = joined.name.endswith("bias")
        total, parts = shape[-1] if bias else shape[-2], len(joined.pieces)
        rows = SHARES[joined.name](config, total) if joined.name in SHARES else (total // parts,) * parts
        for index, stored in enumerate(joined.pieces):
            sizes: Shape = (*shape[:-1], rows[index]) if bias else (*shape[:-2], rows[index], shape[-1])
            if joined.turned_pieces:
                heads = int(config["num_attention_heads"])
                sizes = (heads, rows[index] // heads, shape[-1])
                sizes = (sizes[0], sizes[2], sizes[1]) if stored in joined.turned_pieces else sizes
            stem = _ENDING.sub("", stored)
            place = Place(joined.name)
            yield StoredPlan(stored, (ours,), sizes, stem, -1, place, joined=joined, piece=index, rows=rows)
