"""Fields of rotations by several positions (M-RoPE): which of time, height and width rotates each pair of a head."""

from __future__ import annotations

from twostroke.models.common.sight import TextTurns
from twostroke.types.spec.fields import Fields


def text_turns(text: Fields, usual: tuple[int, int, int], *, interleaved: bool) -> TextTurns:
    """Reads how the language model's heads are rotated. usual: the sections where the config does not have them."""
    group = text.group("rope_scaling") or text.group("rope_parameters") or text.only({})
    found = group.integers("mrope_section") if group.has("mrope_section") else usual
    if len(found) != 3 or any(not 0 <= each <= 4096 for each in found):
        raise group.wrong("mrope_section", "It is three numbers of pairs: time, height and width.")
    return TextTurns((found[0], found[1], found[2]), interleaved)


def theta_of(tower: Fields, usual: float = 10_000.0) -> float:
    """Reads the base of a tower's rotations. usual: the base where the config does not have the field."""
    usual = tower.number("rope_theta", 1.0 + 1e-6, 1e15, default=usual)
    group = tower.group("rope_parameters") or tower.only({})
    return group.number("rope_theta", 1.0 + 1e-6, 1e15, default=usual)
