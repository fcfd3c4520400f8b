"""One way to quantize all linear layers for each format: its config, and a packer of one matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.weights.quantized import packers
from tests.weights.quantized.packers import Packed, draw

Pack = Callable[[np.random.Generator, tuple[int, int]], Packed]


@dataclass(frozen=True)
class Way:
    """config: members of config.json. words: the report on each matrix. kept: the packed kind, None for bf16."""

    config: dict[str, Any]
    pack: Pack
    words: str
    kept: str | None

    @property
    def expected(self) -> bool:
        """Whether config.json alone decides in which kind it is kept."""
        method = self.config.get("quantization_config", {}).get("quant_method", "mlx")
        return method not in ("bitsandbytes", "modelopt") and self.kept != "FLAT4"


def _gptq(bits: int, group: int, kept: str | None, sym: bool = False, order: bool = False, v1: bool = True) -> Way:
    config = {
        "quant_method": "gptq", "bits": bits, "group_size": group, "sym": sym, "desc_act": order,
        "checkpoint_format": "gptq" if v1 else "gptq_v2",
    }  # fmt: skip
    words = f"GPTQ {bits}-bit, " + (f"groups of {group}" if group > 0 else "one group a row")

    def pack(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
        return packers.gptq(draw(rng, shape, bits, group, symmetric=sym, order=order), bits, v1)

    return Way({"quantization_config": config}, pack, words + (", act-order" if order else ""), kept)


def _awq(version: str) -> Way:
    config = {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": version}
    make = packers.awq if version == "gemm" else packers.awq_gemv
    words = "AWQ 4-bit, groups of 64" + (", packed for gemv" if version == "gemv" else "")
    return Way({"quantization_config": config}, lambda rng, shape: make(draw(rng, shape, 4, 64)), words, "AFFINE4_64")


def _compressed(kind: str, weights: dict[str, Any], pack: Pack, words: str, kept: str | None) -> Way:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    config = {
        "quant_method": "compressed-tensors",
        "format": kind,
        "config_groups": {"group_0": group},
        "ignore": ["lm_head"],
    }
    return Way({"quantization_config": config}, pack, f"compressed-tensors {words}", kept)


def _ct_packed(
    bits: int, group: int, symmetric: bool, kept: str | None, dtype: str, order: bool = False
) -> Way:
    def pack(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
        drawn = draw(rng, shape, bits, group, symmetric=symmetric, dtype=dtype, order=order)
        return packers.compressed_packed(drawn, bits, symmetric, order)

    weights = {"num_bits": bits, "type": "int", "symmetric": symmetric, "strategy": "group" if group > 0 else "channel"}
    words = f"{bits}-bit, " + (f"groups of {group}" if group > 0 else "one group a row")
    words += ("" if symmetric else ", zero points") + (", act-order" if order else "")
    members = {**weights, "group_size": group if group > 0 else None}
    return _compressed("pack-quantized", members, pack, words, kept)


def _mlx(bits: int, group: int, dtype: str, kept: str) -> Way:
    settings = {"group_size": group, "bits": bits}
    config = {"quantization": settings, "quantization_config": settings}
    return Way(
        config,
        lambda rng, shape: packers.mlx(rng, shape, bits, group, dtype),
        f"MLX {bits}-bit, groups of {group}",
        kept,
    )


def _hqq(bits: float, group: int, kept: str | None, axis: int = 1) -> Way:
    own = {"nbits": bits, "group_size": group, "axis": axis, "view_as_float": False}
    config = {"quant_method": "hqq", "quant_config": {"weight_quant_params": own}, "skip_modules": ["lm_head"]}
    words = f"HQQ {bits}-bit, groups of {group}" + ("" if axis else " along the rows")

    def pack(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
        return packers.hqq(rng, shape, bits, group, axis)

    return Way({"quantization_config": config}, pack, words, kept)


def _fp8(config: dict[str, Any], tile: tuple[int, int], name: str, words: str) -> Way:
    config = {"quant_method": "fp8", "activation_scheme": "dynamic", **config}

    def pack(rng: np.random.Generator, shape: tuple[int, int]) -> Packed:
        return packers.tiled(rng, shape, (tile[0], min(tile[1], shape[1])), name)

    return Way({"quantization_config": config}, pack, words, None)


def _bnb(field: str, pack: Pack, words: str, kept: str | None) -> Way:
    config = {"quant_method": "bitsandbytes", field: True}
    return Way({"quantization_config": config}, pack, f"bitsandbytes {words}", kept)


_FP8_ROWS = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "channel"}
_INT8_ROWS = {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"}
_NVFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "tensor_group", "group_size": 16}
_MXFP4 = {"num_bits": 4, "type": "float", "symmetric": True, "strategy": "group", "group_size": 32}

WAYS: dict[str, Way] = {
    "gptq-4": _gptq(4, 128, "AFFINE4_128"),
    "gptq-4-sym-32": _gptq(4, 32, "FLAT4", sym=True),
    "gptq-4-v2": _gptq(4, 64, "AFFINE4_64", v1=False),
    "gptq-4-order": _gptq(4, 64, "FLAT4", sym=True, order=True),
    "gptq-2": _gptq(2, 64, "AFFINE4_64"),
    "gptq-3": _gptq(3, 128, "AFFINE4_128", sym=True),
    "gptq-8-rows": _gptq(8, -1, "AFFINE8_128", sym=True),
    "awq": _awq("gemm"),
    "awq-gemv": _awq("gemv"),
    "ct-4": _ct_packed(4, 128, True, "AFFINE4_128", "bfloat16"),
    "ct-4-zeros-32": _ct_packed(4, 32, False, "AFFINE4_32", "bfloat16"),
    "ct-4-order": _ct_packed(4, 64, True, "AFFINE4_64", "bfloat16", order=True),
    "ct-8-rows": _ct_packed(8, -1, True, "AFFINE8_128", "float32"),
    "ct-3": _ct_packed(3, 64, False, "AFFINE4_64", "float16"),
    "ct-int8": _compressed("int-quantized", _INT8_ROWS, packers.int_scaled, "INT8, one scale a row", "AFFINE8_128"),
    "ct-fp8": _compressed(
        "float-quantized", _FP8_ROWS, lambda rng, shape: packers.tiled(rng, shape, (1, shape[1]), "weight_scale"),
        "FP8, one scale a row", None,
    ),
    "ct-nvfp4": _compressed(
        "nvfp4-pack-quantized", _NVFP4, lambda rng, shape: packers.nvfp4(rng, shape, divided=True),
        "NVFP4, groups of 16", "E2M1_16",
    ),
    "ct-mxfp4": _compressed("mxfp4-pack-quantized", _MXFP4, packers.mxfp4, "MXFP4, groups of 32", "E2M1_32"),
    "fp8-tiles": _fp8({"weight_block_size": [128, 128]}, (128, 128), "weight_scale_inv", "FP8, tiles of 128 x 128"),
    "fp8-rows": _fp8({}, (1, 1 << 20), "weight_scale", "FP8, one scale a row"),
    "nf4": _bnb("load_in_4bit", packers.nf4, "NF4, blocks of 64", None),
    "nf4-nested": _bnb(
        "load_in_4bit", lambda rng, shape: packers.nf4(rng, shape, nested=True),
        "NF4, blocks of 64, scales quantized once more", None,
    ),
    "bnb-int8": _bnb("load_in_8bit", packers.int8_rows, "INT8, one scale a row", "AFFINE8_128"),
    "mlx-4": _mlx(4, 64, "bfloat16", "AFFINE4_64"),
    "mlx-8": _mlx(8, 64, "float16", "AFFINE8_64"),
    "mlx-2": _mlx(2, 32, "float16", "AFFINE4_32"),
    "mlx-3": _mlx(3, 64, "bfloat16", "AFFINE4_64"),
    "mlx-5": _mlx(5, 128, "bfloat16", "AFFINE8_128"),
    "mlx-6": _mlx(6, 64, "bfloat16", "AFFINE8_64"),
    "hqq-4": _hqq(4, 64, "AFFINE4_64"),
    "hqq-8": _hqq(8, 128, "AFFINE8_128"),
    "hqq-3": _hqq(3, 64, "AFFINE4_64"),
    "hqq-6": _hqq(6, 64, "AFFINE8_64"),
    "hqq-5": _hqq(5, 128, "AFFINE8_128"),
    "hqq-ternary": _hqq(1.58, 64, "AFFINE4_64"),
    "hqq-2-rows": _hqq(2, 64, None, axis=0),
    "modelopt-nvfp4": Way(
        {"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}},
        lambda rng, shape: packers.nvfp4(rng, shape, divided=False), "ModelOpt NVFP4, groups of 16", "E2M1_16",
    ),
}  # fmt: skip
