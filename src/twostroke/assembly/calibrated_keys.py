"""Scales keys before they are quantized. Puts into the model's program the key factors that `twostroke quantize --to
keys` wrote next to the model: one power of two for each channel of K."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from twostroke.assembly.settings.engine_settings import CacheSettings
from twostroke.assembly.settings.resolver import Resolver
from twostroke.assembly.weights import NOT_PACKED
from twostroke.ops.passes.rotated_heads import with_rotated_heads
from twostroke.ops.passes.scaled_keys import caches_without_bias, scalable_caches, with_scaled_keys
from twostroke.ops.program.model import Model
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.formats import KVKind
from twostroke.weights.key_factors import NAME, KeyFactors, read_key_factors

NO_FACTORS = "none"


def with_calibrated_keys(spec: Model, folder: Path, resolver: Resolver) -> Model:
    """Returns the model with the factors for scaling keys from the file next to it, where K is kept in int8 or int4.

    The setting `key_factors` becomes the digest of the factors, or "none", with the reason. Raises CorruptModel for a
    file that is wrong.
    """
    kind = resolver.resolved().cache.kind
    found = factors_beside(spec, folder, kind)
    if found is None:
        name = kind.name.lower()
        reason = f"no {NAME} of the model has factors for {name}" if kind.is_integer else f"K in {name} needs none"
        resolver.put(CacheSettings.key_factors, NO_FACTORS, reason)
        return with_rotation(spec, kind)
    reason = f"{folder / NAME}: keys are calibrated for {kind.name.lower()}"
    resolver.put(CacheSettings.key_factors, found.digest(kind), reason)
    return with_rotation(with_factors(spec, found, kind), kind)


def with_rotation(spec: Model, kind: KVKind) -> Model:
    """Returns the model whose K and V are rotated before they are kept in int8 or int4."""
    if not kind.is_integer:
        return spec
    return replace(spec, plain=with_rotated_heads(spec.plain), program=with_rotated_heads(spec.program))


def factors_beside(spec: Model, folder: Path, kind: KVKind) -> KeyFactors | None:
    """Returns the factors for scaling keys from the file next to a model. Returns None where the file has none for this
    format of K. Raises CorruptModel."""
    if not kind.is_integer:
        return None
    found = read_key_factors(folder, scalable_caches(spec.plain), caches_without_bias(spec.plain))
    return found if found is not None and found.digest(kind) else None


def with_factors(spec: Model, found: KeyFactors | None, kind: KVKind) -> Model:
    """Returns the model whose keys are divided by these factors, and whose queries are multiplied by them. Raises
    UnsupportedModel where the factors do not fit, or where the program also uses the unscaled keys or queries
    elsewhere."""
    if found is None:
        return spec
    factors = found.factors(kind)
    try:
        plain, program = (with_scaled_keys(each, factors, NOT_PACKED) for each in (spec.plain, spec.program))
    except ValueError as error:
        raise UnsupportedModel(
            f"The keys of this {spec.architecture} cannot have factors: {error}.", fix=f"Delete its {NAME}."
        ) from None
    return replace(spec, plain=plain, program=program)
