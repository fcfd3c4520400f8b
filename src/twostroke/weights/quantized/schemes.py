"""The quantization methods on the hub: for each, which stored tensors form a matrix, and which settings the config has
for each matrix.

A scheme is made from a `quantization_config` and goes through the names of the stored tensors. Tensors that the config
leaves unquantized are stored as plain numbers, and a scheme ignores them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.fields import Fields
from twostroke.weights.quantized import bitsandbytes, mlx
from twostroke.weights.quantized.awq import AwqMatrix
from twostroke.weights.quantized.bitnet import TernaryMatrix
from twostroke.weights.quantized.compressed import WeightScheme, compressed_matrix
from twostroke.weights.quantized.gptq import GptqMatrix, GptqSettings
from twostroke.weights.quantized.hqq import HqqMatrix
from twostroke.weights.quantized.matrix import QuantizedMatrix
from twostroke.weights.quantized.mlx import MlxMatrix
from twostroke.weights.quantized.parts import FLOATS, Held, StoredTensors
from twostroke.weights.quantized.patterns import compiled, exactly, name_list
from twostroke.weights.quantized.scaled import SCALES, ScaledMatrix
from twostroke.weights.quantized.small_floats import ExpertBlocks, SmallFloatMatrix

ROUNDED = "_proj.weight"
"""The ending of the names of matrices whose inputs BitNet rounds."""

Found = Iterator[tuple[str, QuantizedMatrix]]
"""Pairs of a tensor's full name (with .weight) and its quantized matrix."""


class Scheme(Protocol):
    """The way in which one checkpoint is quantized: finds the stored tensors of each quantized matrix."""

    @property
    def method(self) -> str:
        """The method's name, for people."""

    def matrices(self, stored: StoredTensors) -> Found:
        """Yields each quantized matrix of the checkpoint with the full name of its tensor. Raises CorruptModel,
        UnsupportedModel."""


@dataclass(frozen=True, slots=True)
class GptqScheme:
    """The scheme of GPTQ. dynamic: regular expressions for names of modules, each with the settings that differ from
    the usual ones, or None for modules that are not quantized. Satisfies `Scheme`."""

    usual: GptqSettings
    dynamic: tuple[tuple[str, Mapping[str, object] | None], ...]
    held: Held = field(default_factory=Held)
    method = "GPTQ"

    def matrices(self, stored: StoredTensors) -> Found:
        for module in stored.modules(".qweight"):
            settings = self.settings(module)
            yield module + ".weight", GptqMatrix.of(stored, module, settings, self.held)

    def settings(self, module: str) -> GptqSettings:
        """Returns the settings of a module. Raises CorruptModel."""
        place = "config.json: quantization_config.dynamic"
        for pattern, members in self.dynamic:
            if members is not None and compiled(pattern, place).match(module):
                own = Fields(members, f"{place}: {pattern[:60]}")
                group = own.integer("group_size", -1, 1 << 20, self.usual.group or -1)
                return GptqSettings(
                    own.integer("bits", 2, 8, self.usual.bits),
                    max(0, group),
                    own.boolean("sym", self.usual.symmetric),
                    self.usual.less_one,
                    self.usual.gptqmodel,
                )
        return self.usual


@dataclass(frozen=True, slots=True)
class AwqScheme:
    """The scheme of AWQ. Satisfies `Scheme`."""

    group: int
    by_rows: bool
    held: Held = field(default_factory=Held)
    method = "AWQ"

    def matrices(self, stored: StoredTensors) -> Found:
        for module in stored.modules(".qweight"):
            yield module + ".weight", AwqMatrix.of(stored, module, self.group, self.by_rows, self.held)


@dataclass(frozen=True, slots=True)
class CompressedScheme:
    """The scheme of compressed-tensors. groups: the targets of each config group, and how it stores weights.
    Satisfies `Scheme`."""

    groups: tuple[tuple[tuple[str, ...], WeightScheme | None], ...]
    ignore: tuple[str, ...]
    held: Held = field(default_factory=Held)
    method = "compressed-tensors"

    def matrices(self, stored: StoredTensors) -> Found:
        place = "config.json: quantization_config"
        endings = (".weight_packed", ".weight_scale")
        modules = dict.fromkeys(name for ending in endings for name in stored.modules(ending))
        for module in modules:
            if exactly(self.ignore, module, place + ".ignore"):
                raise UnsupportedModel(
                    f"{module[:200]} is in quantization_config.ignore, and its weights are quantized.",
                    why="Config and weights contradict each other.",
                    fix="Download both again.",
                )
            scheme = self.scheme_for(module)
            matrix = None if scheme is None else compressed_matrix(stored, module, scheme, self.held)
            if matrix is not None:
                yield module + ".weight", matrix

    def scheme_for(self, module: str) -> WeightScheme | None:
        """Returns the scheme of a module; None where its weights are not quantized. A group that names the module
        counts before a group for all linear layers. Raises UnsupportedModel."""
        for targets, scheme in self.groups:
            if exactly(targets, module, "config.json: quantization_config.config_groups"):
                return scheme
        for targets, scheme in self.groups:
            if any(target in ("Linear", "LinearBase", "Embedding") for target in targets):
                return scheme
        raise UnsupportedModel(
            f"{module[:200]} is quantized, and no config group of quantization_config names it.",
            why="Targets are names, `re:` expressions or Linear.",
            fix="Compare config.json with the model's page.",
        )


@dataclass(frozen=True, slots=True)
class Fp8Scheme:
    """The scheme of floats of 8 bits. tile: the rows and columns that share a scale; None to find them from the scales'
    shape. Satisfies `Scheme`."""

    tile: tuple[int, int] | None
    method = "FP8"

    def matrices(self, stored: StoredTensors) -> Found:
        for ending in (".weight_scale_inv", ".weight_scale"):
            for module in stored.modules(ending):
                weight = stored.part(module + ".weight", ("F8_E4M3",))
                scale = stored.part(module + ending, SCALES)
                tile = self.tile if self.tile and len(scale.shape) == 2 else _by_row(scale.shape, weight.shape)
                words = {(0, 0): "one scale a matrix", (1, 0): "one scale a row"}.get(
                    tile, f"tiles of {tile[0]} x {tile[1]}"
                )
                yield module + ".weight", ScaledMatrix.of(f"FP8, {words}", weight, scale, tile)


def _by_row(scales: tuple[int, ...], weights: tuple[int, ...]) -> tuple[int, int]:
    """Returns the rows and columns that share a scale, where 0 means all: (1, 0) if there are as many scales as rows,
    else (0, 0)."""
    return (1, 0) if scales and scales[0] == weights[0] and weights[0] > 1 else (0, 0)


@dataclass(frozen=True, slots=True)
class Mxfp4Scheme:
    """The scheme of gpt-oss: stacks of experts' matrices in MXFP4 blocks. Satisfies `Scheme`."""

    method = "MXFP4"

    def matrices(self, stored: StoredTensors) -> Found:
        for name in stored.modules("_blocks"):
            blocks = stored.part(name + "_blocks", ("U8",), (None, None, None, 16))
            scales = stored.part(name + "_scales", ("U8", "F8_E8M0"), blocks.shape[:3])
            yield name, ExpertBlocks(blocks, scales)


@dataclass(frozen=True, slots=True)
class BitsandbytesScheme:
    """The scheme of bitsandbytes: 4 bits by a table, or whole numbers of 8 bits with a scale a row.
    Satisfies `Scheme`."""

    method = "bitsandbytes"

    def matrices(self, stored: StoredTensors) -> Found:
        for ending in bitsandbytes.STATES:
            for name in stored.modules(ending):
                yield name, bitsandbytes.TableMatrix.of(stored, name, ending)
        for module in stored.modules(".SCB"):
            weight = stored.part(module + ".weight", ("I8",))
            scale = stored.part(module + ".SCB", ("F32",))
            words = "bitsandbytes INT8, one scale a row"
            yield module + ".weight", ScaledMatrix.of(words, weight, scale, (1, 0), divisor=127.0)


@dataclass(frozen=True, slots=True)
class HqqScheme:
    """The scheme of HQQ. usual: bits, group (0 for one a row) and axis, where the config has them for all layers; each
    matrix also has its own. skipped: parts of the names of modules that are not quantized. Satisfies `Scheme`."""

    usual: tuple[int, int, int] | None = None
    skipped: tuple[str, ...] = ()
    held: Held = field(default_factory=Held)
    method = "HQQ"

    def matrices(self, stored: StoredTensors) -> Found:
        for module in stored.modules(".W_q"):
            yield module + ".weight", HqqMatrix.of(stored, module, self.held)


@dataclass(frozen=True, slots=True)
class MlxScheme:
    """The scheme of MLX. usual: bits, group, mode. own: the bits, group and mode of single modules.
    Satisfies `Scheme`."""

    usual: tuple[int, int, str]
    own: Mapping[str, tuple[int, int, str]]
    method = "MLX"

    def matrices(self, stored: StoredTensors) -> Found:
        for module in stored.modules(".scales"):
            settings = self.own.get(module, self.usual)
            if len(stored.part(module + ".scales", (*FLOATS, "U8")).shape) == 3:
                for name, one in mlx.each_expert(stored, module):
                    yield name + ".weight", _mlx_matrix(one, module, *settings)
            else:
                yield module + ".weight", _mlx_matrix(stored, module, *settings)


def _mlx_matrix(stored: StoredTensors, module: str, bits: int, group: int, mode: str) -> QuantizedMatrix:
    if mode == "affine":
        return MlxMatrix.of(stored, module, bits, group)
    scales = stored.part(module + ".scales", ("U8",))
    codes = stored.part(module + ".weight", ("U32",))
    if mode == "nvfp4":
        scales = replace(scales, seen_as="F8_E4M3")
    if mode == "mxfp8":
        codes = replace(codes, seen_as="F8_E4M3")
        return ScaledMatrix.of("MLX MXFP8, groups of 32", codes, scales, (1, 32))
    return SmallFloatMatrix.of(f"MLX {mode.upper()}, groups of {group}", codes, scales, group)


@dataclass(frozen=True, slots=True)
class ModeloptScheme:
    """The scheme of NVIDIA's ModelOpt: NVFP4 or FP8. Satisfies `Scheme`."""

    method = "ModelOpt"

    def matrices(self, stored: StoredTensors) -> Found:
        for module in stored.modules(".weight_scale"):
            name = module + ".weight"
            scales = stored.part(module + ".weight_scale", (*SCALES, "F8_E4M3"))
            if scales.info.dtype == "F8_E4M3":
                whole = stored.part(module + ".weight_scale_2", FLOATS)
                codes = stored.part(name, ("U8",))
                yield name, SmallFloatMatrix.of("ModelOpt NVFP4, groups of 16", codes, scales, 16, whole)
            else:
                weight = stored.part(name, ("F8_E4M3",))
                tile = _by_row(scales.shape, weight.shape)
                yield name, ScaledMatrix.of("ModelOpt FP8, one scale a matrix", weight, scales, tile)


@dataclass(frozen=True, slots=True)
class BitnetScheme:
    """The scheme of BitNet b1.58. inverse: True where the stored number is one over the scale. online: True where the
    checkpoint has unquantized weights, which are rounded when they are loaded."""

    inverse: bool
    online: bool
    method = "BitNet"

    def matrices(self, stored: StoredTensors) -> Found:
        """Yields the quantized matrices, whose names all end with ROUNDED. Raises UnsupportedModel for a quantized
        matrix with another name."""
        for module in stored.modules(".weight" if self.online else ".weight_scale"):
            name = module + ".weight"
            if name.endswith(ROUNDED):
                matrix = TernaryMatrix.plain(stored, module) if self.online else self._packed(stored, module)
                yield name, matrix
            elif not self.online:
                raise UnsupportedModel(
                    f"{module[:200]} is quantized by BitNet's rule.",
                    why=f"The inputs of such matrices are rounded where their names end with {ROUNDED}.",
                    fix="Use a model of a family whose linear layers are named so.",
                )

    def _packed(self, stored: StoredTensors, module: str) -> TernaryMatrix:
        return TernaryMatrix.packed(stored, module, self.inverse)


def compressed_scheme(fields: Fields) -> CompressedScheme:
    """Returns the scheme of a quantization_config. Raises CorruptModel, UnsupportedModel."""
    sparse = fields.group("sparsity_config")
    if sparse is not None and sparse.text("format", "dense") != "dense":
        raise UnsupportedModel(
            f"{fields.place}: sparsity_config: the format {sparse.text('format', '')[:40]!r} cannot be read.",
            why="Sparse weights are not implemented.",
            fix="Use the dense checkpoint of this model.",
        )
    transforms = fields.group("transform_config")
    if transforms is not None and transforms.values.get("config_groups"):
        raise UnsupportedModel(
            f"{fields.place}: transform_config is not implemented.",
            why="Its rotations change what the weights mean.",
            fix="Use a checkpoint of this model without them.",
        )
    groups = fields.group("config_groups")
    if groups is None:
        raise fields.wrong("config_groups", "It must say how weights are quantized.")
    found = []
    usual = fields.text("format", "")
    for name in groups.values:
        group = groups.group(name)
        if group is None:
            raise groups.wrong(name, "It must be an object.")
        targets = name_list(group.values.get("targets"), f"{group.place}.targets")
        found.append((targets, WeightScheme.read(group, usual)))
    return CompressedScheme(tuple(found), name_list(fields.values.get("ignore"), f"{fields.place}.ignore"))
