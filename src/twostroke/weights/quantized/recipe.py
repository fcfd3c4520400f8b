"""Finds the scheme that a checkpoint's config names, and refuses schemes that cannot be read.

    config.json: quantization_config (also in text_config), or quantization (MLX); hf_quant_config.json (ModelOpt);
    quantize_config.json (old GPTQ); quant_config.json (old AWQ)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from twostroke.types.errors import UnsupportedModel
from twostroke.types.first_use.lazy_module import LazyModule
from twostroke.types.spec.fields import Fields
from twostroke.weights.json_file import read_object
from twostroke.weights.quantized.kv_scales import check_kv_scheme
from twostroke.weights.quantized.patterns import name_list

if TYPE_CHECKING:
    from twostroke.weights.quantized import gptq, mlx, schemes
    from twostroke.weights.quantized.schemes import Scheme
else:  # most checkpoints name no scheme
    gptq = LazyModule("twostroke.weights.quantized.gptq")
    mlx = LazyModule("twostroke.weights.quantized.mlx")
    schemes = LazyModule("twostroke.weights.quantized.schemes")

SIDE_FILES = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")
"""The files next to config.json that are read where config.json names no scheme."""

INSTEAD = "Use the original checkpoint with --weights int4 or int8, or a GGUF, GPTQ, AWQ or compressed-tensors version."


def scheme_of(config: Mapping[str, Any], place: str = "config.json") -> Scheme | None:
    """Returns the scheme that config.json names; None where weights are plain. Raises CorruptModel, UnsupportedModel.
    """
    for outer, words in ((config, place), (config.get("text_config"), f"{place}: text_config")):
        if not isinstance(outer, Mapping):
            continue
        fields = Fields(outer, words)
        own = fields.group("quantization_config")
        if own is not None and "quant_method" in own.values:
            return _scheme(own)
        apple = fields.group("quantization") or own
        if apple is not None:
            return _mlx(apple)
    return None


def scheme_in(folder: Path) -> Scheme | None:
    """Returns the scheme of a folder, from config.json or from a file next to it. Raises the errors of `scheme_of`."""
    if (folder / "config.json").is_file():
        found = scheme_of(read_object(folder / "config.json"))
        if found is not None:
            return found
    for name in SIDE_FILES:
        if (folder / name).is_file():
            return _beside(name, read_object(folder / name))
    return None


def _beside(name: str, values: Mapping[str, Any]) -> Scheme:
    fields = Fields(values, name)
    if name == "hf_quant_config.json":
        return _modelopt(fields.group("quantization") or fields)
    if name == "quant_config.json":
        renamed = {"group_size": values.get("q_group_size"), "bits": values.get("w_bit"), **values}
        return _awq(Fields(renamed, name))
    return _gptq(fields)


def _scheme(fields: Fields) -> Scheme:
    check_kv_scheme(fields)
    method = fields.text("quant_method", "")
    reader = METHODS.get(method)
    if reader is None:
        raise UnsupportedModel(
            f"{fields.place}: quantization_config: weights quantized by {method[:40]!r} cannot be read.",
            why="Read are " + ", ".join(METHODS) + ", and MLX.",
            fix=INSTEAD,
        )
    return reader(fields)


def _refuse(fields: Fields, name: str, value: object, read: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{fields.place}: {name} {str(value)[:40]!r} cannot be read.", why=f"Read are {read}.", fix=INSTEAD
    )


def _gptq(fields: Fields) -> Scheme:
    bits = fields.integer("bits", 1, 16)
    if bits not in gptq.BITS:
        raise _refuse(fields, "bits", bits, ", ".join(map(str, gptq.BITS)))
    kept = fields.text("checkpoint_format", "") or ("marlin" if fields.boolean("is_marlin_format", False) else "gptq")
    if kept not in ("gptq", "gptq_v2"):
        raise _refuse(fields, "checkpoint_format", kept, "gptq and gptq_v2")
    group = max(0, fields.integer("group_size", -1, 1 << 20, 128))
    meta = fields.group("meta")
    writer = str(meta.values.get("quantizer", "")) if meta is not None else ""
    usual = gptq.GptqSettings(bits, group, fields.boolean("sym", True), kept == "gptq", "gptqmodel" in writer)
    return schemes.GptqScheme(usual, _dynamic(fields, "dynamic"))


def _dynamic(fields: Fields, name: str) -> tuple[tuple[str, Mapping[str, object] | None], ...]:
    """Returns the exceptions of GPTQModel. A key "+:expression" or "expression" has the members that differ; a key
    "-:expression" means modules that are not quantized."""
    group = fields.group(name)
    found: list[tuple[str, Mapping[str, object] | None]] = []
    for pattern, members in (group.values if group else {}).items():
        if pattern.startswith("-:"):
            found.append((pattern[2:], None))
        elif isinstance(members, Mapping):
            found.append((pattern.removeprefix("+:"), members))
        else:
            raise fields.wrong(name, f"{pattern[:60]} must be an object.")
    return tuple(found)


def _awq(fields: Fields) -> Scheme:
    bits = fields.integer("bits", 1, 16, 4)
    if bits != 4:
        raise _refuse(fields, "bits", bits, "4")
    version = fields.text("version", "gemm").lower()
    if version not in ("gemm", "gemv", "exllama", "ipex"):
        raise _refuse(fields, "version", version, "gemm and gemv")
    group = max(0, fields.integer("group_size", -1, 1 << 20, 128))
    return schemes.AwqScheme(group, version == "gemv")


def _fp8(fields: Fields) -> Scheme:
    sizes = fields.values.get("weight_block_size")
    if sizes is None:
        return schemes.Fp8Scheme(None)
    if not isinstance(sizes, list) or len(sizes) != 2 or not all(type(s) is int and 0 < s <= 1 << 20 for s in sizes):
        raise fields.wrong("weight_block_size", "It must be two sizes.")
    return schemes.Fp8Scheme((sizes[0], sizes[1]))


def _modelopt(fields: Fields) -> Scheme:
    algorithm = fields.text("quant_algo", "FP8").upper()
    if algorithm not in ("FP8", "NVFP4", "MIXED_PRECISION"):
        raise _refuse(fields, "quant_algo", algorithm, "FP8 and NVFP4")
    return schemes.ModeloptScheme()


def _auto_round(fields: Fields) -> Scheme:
    packing = fields.text("packing_format", "")
    if fields.values.get("extra_config"):
        raise _refuse(fields, "extra_config", "of single layers", "files whose layers are all alike")
    if packing.endswith("gptq"):
        return _gptq(fields)
    if packing.endswith("awq"):
        return _awq(fields)
    raise _refuse(fields, "packing_format", packing, "auto_round:auto_gptq and auto_round:auto_awq")


def _bitsandbytes(fields: Fields) -> Scheme:
    return schemes.BitsandbytesScheme()


def _hqq(fields: Fields) -> Scheme:
    said = fields.group("quant_config")
    own = said.group("weight_quant_params") if said is not None else None
    if own is None:  # only single layers have settings
        return schemes.HqqScheme()
    group, axis = own.integer("group_size", 1, 1 << 20, 0), own.integer("axis", 0, 1, 1)
    skipped = name_list(fields.values.get("skip_modules"), f"{fields.place}.skip_modules")
    return schemes.HqqScheme((math.ceil(own.number("nbits", 1, 8, 4)), group, axis), skipped)


def _bitnet(fields: Fields) -> Scheme:
    words = {"linear_class": ("bitlinear", "autobitlinear"), "quantization_mode": ("offline", "online")}
    said = {name: fields.text(name, known[0]) for name, known in words.items()}
    for name, word in said.items():
        if word not in words[name]:
            raise _refuse(fields, name, word, " and ".join(words[name]))
    if fields.boolean("use_rms_norm", False):
        raise _refuse(fields, "use_rms_norm", True, "models without norms inside their linear layers")
    left_out = name_list(fields.values.get("modules_to_not_convert"), f"{fields.place}.modules_to_not_convert")
    if set(left_out) - {"lm_head"}:
        raise _refuse(fields, "modules_to_not_convert", left_out, "models of which lm_head alone is left out")
    direct = said["linear_class"] == "autobitlinear"
    return schemes.BitnetScheme(not direct, direct and said["quantization_mode"] == "online")


def _mxfp4(fields: Fields) -> Scheme:
    return schemes.Mxfp4Scheme()


def _compressed(fields: Fields) -> Scheme:
    return schemes.compressed_scheme(fields)


def _fbgemm(fields: Fields) -> Scheme:
    return schemes.Fp8Scheme(None)


def _mlx(fields: Fields) -> Scheme:
    def read(group: Fields) -> tuple[int, int, str]:
        mode = group.text("mode", "affine")
        if mode not in mlx.MODES:
            raise _refuse(group, "mode", mode, ", ".join(mlx.MODES))
        bits, size = group.integer("bits", 1, 8, 4), group.integer("group_size", 1, 1 << 16, 64)
        wanted = mlx.MODES[mode]
        if bits not in wanted.bits:
            raise _refuse(group, "bits", bits, ", ".join(map(str, wanted.bits)))
        if size not in wanted.groups:
            raise _refuse(group, "group_size", size, ", ".join(map(str, wanted.groups)))
        return bits, size, mode

    own = {}
    for name, value in fields.values.items():
        group = fields.group(name) if isinstance(value, Mapping) else None
        if group is not None:
            own[name] = read(Fields({**_settings(fields), **group.values}, group.place))
    return schemes.MlxScheme(read(fields), own)


def _settings(fields: Fields) -> dict[str, Any]:
    return {name: value for name, value in fields.values.items() if not isinstance(value, Mapping | bool)}


METHODS: Mapping[str, Callable[[Fields], Scheme]] = {
    "gptq": _gptq,
    "awq": _awq,
    "compressed-tensors": _compressed,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm,
    "hqq": _hqq,
    "mxfp4": _mxfp4,
    "bitnet": _bitnet,
    "bitsandbytes": _bitsandbytes,
    "modelopt": _modelopt,
    "auto-round": _auto_round,
}
"""Value of quant_method -> the function that makes the scheme."""
