"""BitNet b1.58's folders: packed weights with a scale or its inverse, and weights that are rounded when they are read.
They are compared with transformers' own linear layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.lazily import torch, torch_files
from tests.models.families.stored import config_of
from tests.models.parity import Loaded, relative_error
from twostroke.backends.cpu import CpuOps
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import read_folder
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker

PACKED = {"linear_class": "autobitlinear", "quantization_mode": "offline"}
INVERSE = {"linear_class": "bitlinear"}
ONLINE = {"linear_class": "autobitlinear", "quantization_mode": "online"}


def bitnet_folder(folder: Path, own: dict[str, Any], scale: float = 0.1953125) -> torch.nn.Module:
    """Writes a tiny checkpoint. Returns transformers' model of it, whose linear layers round as those layers do."""
    from transformers.integrations.bitnet import AutoBitLinear, BitLinear, pack_weights, replace_with_bitnet_linear
    from transformers.utils.quantization_config import BitNetQuantConfig

    from tests.models.families.whole import make_checkpoint

    judge = make_checkpoint("bitnet", folder)
    tensors = {name: values.clone() for name, values in judge.state_dict().items()}
    replace_with_bitnet_linear(judge, ["lm_head"], BitNetQuantConfig(**own))
    draw = torch.Generator().manual_seed(3)
    for name, module in judge.named_modules():
        key = f"{name}.weight"
        if not isinstance(module, BitLinear | AutoBitLinear):
            continue
        if own == ONLINE:
            module.weight.data = tensors[key]
            continue
        codes = torch.randint(-1, 2, tensors[key].shape, generator=draw).float()
        packed = pack_weights(codes.clone())
        stored = torch.tensor([1 / scale if own == INVERSE else scale]).bfloat16()
        module.weight = packed if own == INVERSE else torch.nn.Parameter(codes)
        module.weight_scale = stored.float()
        tensors |= {key: packed, f"{name}.weight_scale": stored}
    for module in judge.modules():
        if isinstance(module, BitLinear):
            module.dtype = torch.float32
    torch_files.save_file({name: values.contiguous() for name, values in tensors.items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "bitnet", "modules_to_not_convert": None, **own}
    (folder / "config.json").write_text(json.dumps(config))
    return judge


@pytest.mark.parametrize("own", [PACKED, INVERSE, ONLINE], ids=["packed", "inverse", "online"])
def test_numbers_and_logits_are_those_of_transformers(own: dict[str, Any], tmp_path: Path) -> None:
    from transformers.integrations.bitnet import AutoBitLinear, WeightQuant

    judge = bitnet_folder(tmp_path, own).eval()
    ids = np.random.default_rng(5).integers(0, 199, 12).tolist()
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        expected = judge(torch.tensor([ids])).logits[0].numpy()
        plain = {
            f"{name}.weight": WeightQuant.apply(module.weight).numpy()
            for name, module in judge.named_modules()
            if isinstance(module, AutoBitLinear) and own == ONLINE
        }
    ops = CpuOps(None, 1)
    found = Loaded(tmp_path, ops).run(ids, [len(ids)])
    ops.close()
    # A number between two whole ones may be rounded to either, by the last bit of a sum.
    assert relative_error(found, expected) < 2e-3
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1e-4 * (expected.max() - expected.min())
    model = read_folder(tmp_path)
    with Checkpoint.open(tmp_path) as checkpoint:
        for name, values in plain.items():
            np.testing.assert_allclose(checkpoint.read(name), values, rtol=1e-6)
        weights = load_weights(checkpoint, model, format_choice(STORED), NumpyPacker())
        for weight in model.program.weights:
            if weight.parts[0].name.endswith("_proj.weight"):
                # The inverse of a stored number, or the mean of float32 numbers, is no number of 16 bits.
                kept = WeightKind.FLAT4 if own == PACKED else WeightKind.AFFINE4_64
                kept = WeightKind.BF16 if weight.columns % 32 else kept
                assert weight.stored is not None and weight.stored.kind is kept
                whole = np.concatenate([checkpoint.read(part.name) for part in weight.parts])
                near = 0.004 if kept is WeightKind.BF16 else 1e-6
                np.testing.assert_allclose(unpack(weights.matrices[weight.key]), whole, rtol=near)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"use_rms_norm": True}, UnsupportedModel, "use_rms_norm"),
        ({"linear_class": "other"}, UnsupportedModel, "linear_class"),
        ({"modules_to_not_convert": ["model.layers.0.mlp.down_proj"]}, UnsupportedModel, "modules_to_not_convert"),
        ({"code": 3}, CorruptModel, "-1, 0 or 1"),
        ({"scale": 0.0}, CorruptModel, "larger than zero"),
    ],
)
def test_what_is_not_understood_is_refused(
    changes: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    scale = changes.pop("scale", 0.1953125)
    code = changes.pop("code", 0)
    bitnet_folder(tmp_path, PACKED, scale)
    if code:
        with Checkpoint.open(tmp_path) as checkpoint:
            assert "model.layers.0.mlp.up_proj.weight" in checkpoint.names
        tensors = torch_files.load_file(tmp_path / "model.safetensors")
        tensors["model.layers.0.mlp.up_proj.weight"][0, 0] = 0xFF
        torch_files.save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"] |= changes
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=words):
        model = read_folder(tmp_path)
        with Checkpoint.open(tmp_path) as checkpoint:
            load_weights(checkpoint, model, format_choice("f32"), NumpyPacker())


def test_experts_are_refused() -> None:
    config = config_of("qwen3-moe-dense-layers")
    with pytest.raises(UnsupportedModel, match=r"experts.*BitNet"):
        read_model({**config, "quantization_config": {"quant_method": "bitnet", **PACKED}})
