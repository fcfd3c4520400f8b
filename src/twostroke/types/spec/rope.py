"""Rotary position embeddings in numbers: RopeSpec, and the functions that read it from either form of a Hugging Face
config.

Old form: `rope_theta` at the top, `rope_scaling` = {"type" or "rope_type", ...}. Form of transformers 5:
`rope_parameters` = {"rope_type", "rope_theta", ...}. Defaults and precedence follow transformers' modeling_rope_utils.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass

from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.portable import ln

MAX_POSITIONS = 1 << 27
MAX_FACTOR = 1e6


class RopeKind(enum.StrEnum):
    """How rotation frequencies are stretched beyond the trained positions."""

    DEFAULT = "default"
    LINEAR = "linear"
    DYNAMIC = "dynamic"
    YARN = "yarn"
    LONGROPE = "longrope"
    LLAMA3 = "llama3"
    PROPORTIONAL = "proportional"
    STILL = "still"
    """The kind for queries without rotary positions, which are only multiplied by a factor that grows with their
    position (RopeSpec.growth). No config names this kind."""


@dataclass(frozen=True, slots=True)
class RopeSpec:
    """The numbers from which the cos and sin of one kind of rotation are computed. rotary_dim: the number of leading
    elements of a head that are rotated, even. original_positions: the positions of the training without scaling.

    attention_factor multiplies cos and sin (yarn, longrope). low_freq_factor and high_freq_factor belong to llama3,
    beta_fast, beta_slow and truncate to yarn, short_factors and long_factors (rotary_dim / 2 of each) to longrope.
    growth and power: queries get a factor that grows with their position p; `ahead` is added to p in both formulas.
    growth (Ministral 3, Llama 4): cos and sin of position p are multiplied by 1 + growth log(1 + floor((p + ahead) /
    original_positions)). power (Beam): where it is above 0, the factor is (1 + (p + ahead) / original_positions) ^
    power. still: True where no element is rotated, so that only this factor is applied. turned: for proportional, how
    many of the rotary_dim / 2 pairs are rotated, the fastest first; the others stay unchanged. back: position p is
    rotated as position max(p - back, 0) is; a negative `back` means a later position. undone: True where the inverse
    rotation is applied.
    """

    kind: RopeKind
    theta: float
    rotary_dim: int
    original_positions: int
    factor: float = 1.0
    attention_factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    growth: float = 0.0
    power: float = 0.0
    ahead: int = 0
    still: bool = False
    turned: int = 0
    back: int = 0
    undone: bool = False

    @property
    def reach(self) -> int:
        """The number of positions that the scaling reaches: the trained positions times factor, for the kinds where
        factor means this; else 0."""
        if self.kind in (RopeKind.YARN, RopeKind.LINEAR, RopeKind.DYNAMIC):
            return min(MAX_POSITIONS, int(self.original_positions * self.factor))
        return 0


def rope_from_config(
    config: Fields, head_dim: int, max_positions: int, *, partial: float | None = None, theta: float = 10_000.0
) -> RopeSpec:
    """Reads the rope fields of a config. Raises CorruptModel or UnsupportedModel naming the field.

    partial: the share of a head that is rotated where partial_rotary_factor is absent; None for families that
    rotate whole heads whatever that field is. theta: the base where the config does not have the field.
    """
    top_theta = config.number("rope_theta", 1.0 + 1e-6, 1e15, default=theta)
    group = config.group("rope_scaling") or config.group("rope_parameters") or Fields({}, config.place)
    if any(isinstance(value, dict) for value in group.values.values()):
        raise UnsupportedModel(
            f"{group.place} holds one set of values per layer type.",
            why="Every layer of this family shares one table of rotations.",
            fix="Use a model whose rope parameters are the same in all layers.",
        )
    return _read_rope(config, group, head_dim, max_positions, partial, top_theta)


def ropes_by_layer_type(
    config: Fields,
    head_dim: int,
    max_positions: int,
    thetas: Mapping[str, tuple[str, float]],
    scaled: str,
    *,
    partial: float | None = None,
) -> dict[str, RopeSpec]:
    """Returns the rope of each layer type, from `rope_parameters` with one set of values for each, or from the older
    fields.

    thetas: layer type -> (name of the older field with the base, the base to use where that field is absent). scaled:
    the layer type for which the older `rope_scaling` is meant; all others are rotated without scaling. partial: see
    rope_from_config.
    """
    groups = config.group("rope_parameters") or Fields({}, config.place)
    scaling = config.group("rope_scaling")
    found = {}
    for layer_type, (field, usual) in thetas.items():
        theta = config.number(field, 1.0 + 1e-6, 1e15, default=usual)
        group = groups.group(layer_type) or Fields({}, config.place)
        if scaling is not None and layer_type == scaled:
            group = Fields({**group.values, **scaling.values}, scaling.place)
        found[layer_type] = _read_rope(config, group, head_dim, max_positions, partial, theta)
    unknown = [name for name in groups.values if name not in thetas]
    if unknown and any(isinstance(value, dict) for value in groups.values.values()):
        raise groups.wrong(unknown[0], f"There are layers of types {', '.join(thetas)}.")
    if unknown:
        raise UnsupportedModel(
            f"{groups.place} holds one set of values for all layers.",
            why=f"Layers of types {', '.join(thetas)} have rotations of their own in this family.",
            fix=f"Write one set of values for each of {', '.join(thetas)}.",
        )
    return found


def _read_rope(
    config: Fields, group: Fields, head_dim: int, max_positions: int, partial: float | None, usual_theta: float
) -> RopeSpec:
    theta = group.number("rope_theta", 1.0 + 1e-6, 1e15, default=usual_theta)
    kind = _kind(group)
    rotary_dim = head_dim
    if kind is RopeKind.PROPORTIONAL:
        return _proportional(group, theta, head_dim, max_positions)
    if partial is None:
        _check_partial_rotary(config, group, kind)
    else:
        outer = config.number("partial_rotary_factor", 1e-3, 1.0, default=partial)
        rotary_dim = int(head_dim * group.number("partial_rotary_factor", 1e-3, 1.0, default=outer))
    if rotary_dim < 2 or rotary_dim % 2 or (kind is RopeKind.DYNAMIC and rotary_dim < 4):
        why = f"Rotations of kind {kind} turn pairs, and {rotary_dim} elements of a head are too few or an odd number."
        raise config.wrong("head_dim", why)
    if kind is RopeKind.DEFAULT:
        return RopeSpec(kind, theta, rotary_dim, max_positions)
    if kind in (RopeKind.LINEAR, RopeKind.DYNAMIC):
        return RopeSpec(kind, theta, rotary_dim, max_positions, factor=group.number("factor", 1e-3, MAX_FACTOR))
    original = group.integer("original_max_position_embeddings", 2, MAX_POSITIONS, default=max_positions)
    # Checkpoints that write this field outside the group also mean it: transformers gives the outer field priority.
    original = config.integer("original_max_position_embeddings", 2, MAX_POSITIONS, default=original)
    if kind is RopeKind.LLAMA3:
        return _llama3(group, theta, rotary_dim, original)
    if kind is RopeKind.YARN:
        return _yarn(group, theta, rotary_dim, original, max_positions)
    return _longrope(group, theta, rotary_dim, original, max_positions)


def _check_partial_rotary(config: Fields, group: Fields, kind: RopeKind) -> None:
    """Raises UnsupportedModel where partial_rotary_factor is set together with rope scaling. These families rotate
    whole heads: transformers ignores the factor where there is no scaling, and fails where there is."""
    outer = config.number("partial_rotary_factor", 1e-3, 1.0, default=1.0)
    share = group.number("partial_rotary_factor", 1e-3, 1.0, default=outer)
    if share != 1.0 and kind is not RopeKind.DEFAULT:
        raise UnsupportedModel(
            f"config.json: partial_rotary_factor {share:g} with rope_type {kind} is not implemented.",
            why="This family turns whole heads; transformers cannot run this config either.",
            fix="Remove partial_rotary_factor if every element of a head is meant to turn.",
        )


def _kind(group: Fields) -> RopeKind:
    word = group.text("rope_type", group.text("type", "default"))
    known = [kind for kind in RopeKind if kind is not RopeKind.STILL]
    if word not in known:
        raise UnsupportedModel(
            f"{group.place}: rope_type {word[:40]!r} is not implemented.",
            why="Implemented: " + ", ".join(known) + ".",
            fix="Use a model with one of these, or ask for this one in the project's issues.",
        )
    return RopeKind(word)


def _proportional(group: Fields, theta: float, head_dim: int, max_positions: int) -> RopeSpec:
    """Returns the rope of Gemma 4. The frequencies are those of whole heads, and only a share of the rotary pairs is
    rotated: those with the highest frequencies."""
    turned = int(group.number("partial_rotary_factor", 0.0, 1.0, default=1.0) * head_dim // 2)
    if head_dim % 2 or not turned:
        raise group.wrong("partial_rotary_factor", f"At least one pair of the {head_dim} elements of a head must turn.")
    factor = group.number("factor", 1e-3, MAX_FACTOR, default=1.0)
    return RopeSpec(RopeKind.PROPORTIONAL, theta, head_dim, max_positions, factor=factor, turned=turned)


def _llama3(group: Fields, theta: float, rotary_dim: int, original: int) -> RopeSpec:
    low = group.number("low_freq_factor", 1e-3, MAX_FACTOR)
    high = group.number("high_freq_factor", 1e-3, MAX_FACTOR)
    if high <= low:
        raise group.wrong("high_freq_factor", f"It must be more than low_freq_factor ({low:g}).")
    factor = group.number("factor", 1e-3, MAX_FACTOR)
    return RopeSpec(
        RopeKind.LLAMA3, theta, rotary_dim, original, factor=factor, low_freq_factor=low, high_freq_factor=high
    )


def _yarn(group: Fields, theta: float, rotary_dim: int, original: int, max_positions: int) -> RopeSpec:
    factor = group.number("factor", 1e-3, MAX_FACTOR, default=max_positions / original)
    mscale = group.number("mscale", 0.0, 1e3, default=0.0)
    mscale_all_dim = group.number("mscale_all_dim", 0.0, 1e3, default=0.0)
    if mscale and mscale_all_dim:
        usual = _yarn_mscale(factor, mscale) / _yarn_mscale(factor, mscale_all_dim)
    else:
        usual = _yarn_mscale(factor, 1.0)
    return RopeSpec(
        RopeKind.YARN,
        theta,
        rotary_dim,
        original,
        factor=factor,
        attention_factor=group.number("attention_factor", 0.0, 1e3, default=usual),
        beta_fast=group.number("beta_fast", 0.0, 1e6, default=32.0) or 32.0,
        beta_slow=group.number("beta_slow", 0.0, 1e6, default=1.0) or 1.0,
        truncate=group.boolean("truncate", True),
    )


def _yarn_mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * ln(factor) + 1.0


def _longrope(group: Fields, theta: float, rotary_dim: int, original: int, max_positions: int) -> RopeSpec:
    factor = group.number("factor", 1e-3, MAX_FACTOR, default=max_positions / original)
    usual = 1.0 if factor <= 1 else math.sqrt(1 + ln(factor) / ln(original))
    return RopeSpec(
        RopeKind.LONGROPE,
        theta,
        rotary_dim,
        original,
        factor=factor,
        attention_factor=group.number("attention_factor", 0.0, 1e3, default=usual),
        short_factors=group.numbers("short_factor", rotary_dim // 2, 1e-3, MAX_FACTOR),
        long_factors=group.numbers("long_factor", rotary_dim // 2, 1e-3, MAX_FACTOR),
    )
