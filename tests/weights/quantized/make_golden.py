"""Small matrices packed and unpacked by the formats' own libraries, for tests/weights/quantized/test_golden.py.

    python make_golden.py FOLDER

Needs compressed-tensors, mlx, bitsandbytes, hqq and torch, which the project itself does not need. AutoAWQ's source is
read where its folder is given as a second argument. Each file contains the tensors of a module, the library's unpacked
matrix as `expected`, and the config as metadata.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

ROWS, COLUMNS = 16, 256


def write(folder: Path, name: str, config: dict, tensors: dict[str, torch.Tensor], expected: torch.Tensor) -> None:
    stored = {f"m.{key}": value.contiguous() for key, value in tensors.items()}
    save_file(
        {**stored, "expected": expected.float().contiguous()},
        folder / f"{name}.safetensors",
        {"config": json.dumps(config)},
    )


def weight(seed: int) -> torch.Tensor:
    return torch.randn(ROWS, COLUMNS, generator=torch.Generator().manual_seed(seed)) * 0.05


def compressed(folder: Path) -> None:
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam

    def one(name: str, kind: str, seed: int, **members: object) -> None:
        args = QuantizationArgs(**members)
        scheme = QuantizationScheme(targets=["Linear"], weights=args)
        values = weight(seed)
        group = members.get("group_size") or COLUMNS
        parts = values if members["strategy"] == "tensor" else values.reshape(ROWS, -1, group)
        dims = (0, 1) if members["strategy"] == "tensor" else (-1,)
        state: dict[str, torch.Tensor] = {"weight": values}
        if kind == "nvfp4-pack-quantized":
            state["weight_global_scale"] = generate_gparam(values.amin().reshape(1), values.amax().reshape(1))
            scale, zero = calculate_qparams(
                parts.amin(-1), parts.amax(-1), args, global_scale=state["weight_global_scale"]
            )
        else:
            scale, zero = calculate_qparams(
                parts.amin(dims).reshape(-1, 1) if members["strategy"] == "tensor" else parts.amin(-1),
                parts.amax(dims).reshape(-1, 1) if members["strategy"] == "tensor" else parts.amax(-1),
                args,
            )
        if members["strategy"] == "tensor":
            scale, zero = scale.reshape(1), zero.reshape(1)
        state |= {"weight_scale": scale, "weight_zero_point": zero}
        compressor = BaseCompressor.get_value_from_registry(kind)
        packed = compressor.compress(dict(state), scheme)
        expected = compressor.decompress(dict(packed), scheme)["weight"]
        config = {
            "quant_method": "compressed-tensors",
            "format": kind,
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": json.loads(args.model_dump_json())}},
        }
        write(folder, f"compressed-{name}", config, packed, expected)

    one("int4-groups", "pack-quantized", 1, num_bits=4, type="int", symmetric=True, strategy="group", group_size=128)
    one("int4-zeros", "pack-quantized", 2, num_bits=4, type="int", symmetric=False, strategy="group", group_size=32)
    one("int8-rows", "pack-quantized", 3, num_bits=8, type="int", symmetric=True, strategy="channel")
    one("int3-zeros", "pack-quantized", 4, num_bits=3, type="int", symmetric=False, strategy="group", group_size=64)
    one("w8a8", "int-quantized", 5, num_bits=8, type="int", symmetric=True, strategy="channel")
    one("fp8-rows", "float-quantized", 6, num_bits=8, type="float", symmetric=True, strategy="channel")
    one("fp8", "float-quantized", 7, num_bits=8, type="float", symmetric=True, strategy="tensor")
    one(
        "nvfp4",
        "nvfp4-pack-quantized",
        8,
        num_bits=4,
        type="float",
        symmetric=True,
        strategy="tensor_group",
        group_size=16,
        scale_dtype=torch.float8_e4m3fn,
    )
    one(
        "mxfp4",
        "mxfp4-pack-quantized",
        9,
        num_bits=4,
        type="float",
        symmetric=True,
        strategy="group",
        group_size=32,
        scale_dtype=torch.uint8,
    )
    one(
        "mxfp8",
        "mxfp8-quantized",
        10,
        num_bits=8,
        type="float",
        symmetric=True,
        strategy="group",
        group_size=32,
        scale_dtype=torch.uint8,
    )
    one("int4-whole-zeros", "pack-quantized", 11, num_bits=4, type="int", symmetric=False, strategy="tensor")


def mlx(folder: Path) -> None:
    import mlx.core as mx

    for seed, (bits, group, dtype) in enumerate(
        [
            (2, 64, mx.float16),
            (3, 64, mx.float32),
            (4, 64, mx.float16),
            (5, 32, mx.float32),
            (6, 128, mx.float32),
            (8, 32, mx.float16),
        ],
        20,
    ):
        values = mx.array(weight(seed).numpy()).astype(dtype)
        codes, scales, biases = mx.quantize(values, group_size=group, bits=bits)
        found = mx.dequantize(codes, scales.astype(mx.float32), biases.astype(mx.float32), group_size=group, bits=bits)
        tensors = {"weight": codes, "scales": scales, "biases": biases}
        write(
            folder,
            f"mlx-{bits}",
            {"group_size": group, "bits": bits},
            {k: torch.from_numpy(np.array(v)) for k, v in tensors.items()},
            torch.from_numpy(np.array(found.astype(mx.float32))),
        )
    for seed, (mode, bits, group) in enumerate((("mxfp4", 4, 32), ("nvfp4", 4, 16), ("mxfp8", 8, 32)), 30):
        codes, scales = mx.quantize(mx.array(weight(seed).numpy()), group_size=group, bits=bits, mode=mode)
        found = mx.dequantize(codes, scales, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
        tensors = {"weight": torch.from_numpy(np.array(codes)), "scales": torch.from_numpy(np.array(scales))}
        config = {"group_size": group, "bits": bits, "mode": mode}
        write(folder, f"mlx-{mode}", config, tensors, torch.from_numpy(np.array(found)))


def bitsandbytes(folder: Path) -> None:
    from bitsandbytes.functional import dequantize_4bit, int8_vectorwise_dequant, int8_vectorwise_quant, quantize_4bit

    for seed, (name, kind, nested) in enumerate(
        [("nf4", "nf4", False), ("nf4-nested", "nf4", True), ("fp4", "fp4", False)], 40
    ):
        codes, state = quantize_4bit(weight(seed), blocksize=64, quant_type=kind, compress_statistics=nested)
        tensors = {"weight": codes} | {f"weight.{key}": value for key, value in state.as_dict(packed=True).items()}
        write(
            folder,
            f"bitsandbytes-{name}",
            {"quant_method": "bitsandbytes", "load_in_4bit": True},
            tensors,
            dequantize_4bit(codes, state),
        )
    codes, scales, _ = int8_vectorwise_quant(weight(44).half())
    write(
        folder,
        "bitsandbytes-int8",
        {"quant_method": "bitsandbytes", "load_in_8bit": True},
        {"weight": codes, "SCB": scales},
        int8_vectorwise_dequant(codes, scales),
    )


def awq(folder: Path, source: Path) -> None:
    found = importlib.util.spec_from_file_location("packing_utils", source / "utils" / "packing_utils.py")
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    rng = torch.Generator().manual_seed(50)

    def words(*shape: int) -> torch.Tensor:
        return torch.randint(-(2**31), 2**31 - 1, shape, generator=rng, dtype=torch.int64).to(torch.int32)

    qweight, qzeros = words(COLUMNS, ROWS // 8), words(COLUMNS // 64, ROWS // 8)
    scales = (torch.rand(COLUMNS // 64, ROWS, generator=rng) * 0.02).half()
    expected = module.dequantize_gemm(qweight, qzeros, scales.float(), 4, 64).T
    write(
        folder,
        "awq",
        {"quant_method": "awq", "bits": 4, "group_size": 64, "version": "gemm"},
        {"qweight": qweight, "qzeros": qzeros, "scales": scales},
        expected,
    )


def hqq(folder: Path) -> None:
    from hqq.core.quantize import BaseQuantizeConfig, HQQLinear

    ways = {
        "4": (4, 64, 1, False), "8": (8, 128, 1, False), "3": (3, 64, 1, False), "2-rows": (2, 64, 0, False),
        "4-floats": (4, 64, 1, True), "3-rows": (3, 64, 0, False),
    }  # fmt: skip
    for seed, (name, (bits, group, axis, floats)) in enumerate(ways.items(), 100):
        linear = torch.nn.Linear(COLUMNS, ROWS, bias=False)
        linear.weight.data = weight(seed)
        own = BaseQuantizeConfig(nbits=bits, group_size=group, axis=axis, view_as_float=floats)
        made = HQQLinear(linear, quant_config=own, compute_dtype=torch.float32, device="cpu")
        config = {"quant_method": "hqq", "quant_config": own, "skip_modules": ["lm_head"]}
        write(folder, f"hqq-{name}", config, made.state_dict(), made.dequantize().detach())


def main() -> None:
    folder = Path(sys.argv[1])
    compressed(folder)
    mlx(folder)
    bitsandbytes(folder)
    hqq(folder)
    if len(sys.argv) > 2:
        awq(folder, Path(sys.argv[2]))


if __name__ == "__main__":
    main()
