"""An error in a quantized checkpoint gives one error that names the tensor or the field."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open

from tests.lazily import torch, torch_files
from tests.weights.quantized.formats import WAYS
from tests.weights.quantized.test_formats import LLAMA, make
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.runner.folder import read_folder
from twostroke.types.errors import CorruptModel, ModelError, UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.quantized.hqq import HqqMatrix
from twostroke.weights.quantized.parts import Held, StoredTensors
from twostroke.weights.quantized.recipe import METHODS, scheme_of

UP = "model.layers.0.mlp.up_proj."
Change = Callable[[dict[str, Any]], None]


def load(folder: Path, weights: str = STORED) -> None:
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        load_weights(checkpoint, model, format_choice(weights), NumpyPacker())


def put(part: str, values: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[UP + part] = values(tensors[UP + part]).contiguous()

    return change


def without(part: str) -> Change:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        del tensors[UP + part]

    return change


def kv_scale(part: str, number: float) -> Change:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        tensors[f"model.layers.0.self_attn.{part}"] = torch.tensor(number)

    return change


def one(number: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """The first element becomes this number."""

    def change(values: torch.Tensor) -> torch.Tensor:
        found = values.clone()
        found.view(-1)[0] = number
        return found

    return change


WRONG: list[tuple[str, Change, str]] = [
    ("gptq-4", without("scales"), "lacks the tensor .*up_proj.scales"),
    ("gptq-4", without("qzeros"), "lacks the tensor .*up_proj.qzeros"),
    ("gptq-4", put("scales", lambda s: s[:1]), r"up_proj.scales .*shape \[1, 384\], expected \[2, 384\]"),
    ("gptq-4", put("qzeros", lambda z: z[:, 1:]), "up_proj.qzeros .*shape"),
    ("gptq-4", put("scales", one(float("nan"))), "up_proj.scales holds numbers that are NaN"),
    ("gptq-4", put("qweight", lambda q: q.float()), "up_proj.qweight .*type F32"),
    ("gptq-4", put("qweight", lambda q: q[:-1]), "up_proj"),
    ("gptq-8-rows", put("qweight", lambda q: q[:0]), "up_proj.qweight .*it is empty"),
    ("ct-4", put("weight_shape", lambda s: s * 0), "up_proj.weight_packed .*weight_shape"),
    ("ct-4", put("weight_shape", lambda s: -s), "up_proj.weight_packed .*weight_shape"),
    ("fp8-tiles", put("weight_scale_inv", lambda s: s[:0]), "weight_scale_inv .*it is empty"),
    ("gptq-4-order", put("g_idx", one(99)), "up_proj.g_idx .*groups from 0 to 99, and there are 4"),
    ("gptq-4-order", put("g_idx", one(-1)), "up_proj.g_idx .*groups from -1"),
    ("gptq-4-sym-32", put("qzeros", one(0)), "up_proj.qzeros .*symmetric"),
    ("gptq-3", put("qweight", lambda q: q[:-1]), "up_proj.qweight .*whole codes of 3 bits"),
    ("awq", put("qzeros", lambda z: z[:1]), "up_proj.qzeros .*shape"),
    ("awq", put("scales", one(float("inf"))), "up_proj.scales holds"),
    ("awq-gemv", put("scales", lambda s: s[:, :1]), "up_proj.scales .*fewer than the 4 groups"),
    ("ct-4", put("weight_shape", lambda s: s + 64), "up_proj.weight_packed .*weight_shape"),
    ("ct-4", without("weight_shape"), "lacks the tensor .*weight_shape"),
    ("ct-4-zeros-32", without("weight_zero_point"), "lacks the tensor .*weight_zero_point"),
    ("ct-nvfp4", put("weight_global_scale", one(0.0)), "weight_global_scale .*zero"),
    ("ct-mxfp4", put("weight_scale", one(255)), "up_proj.weight_scale holds numbers that are NaN"),
    ("ct-mxfp4", put("weight_scale", lambda s: s[:, 1:]), "up_proj.weight_scale .*shape"),
    ("fp8-tiles", put("weight_scale_inv", lambda s: s[1:]), r"weight_scale_inv .*shape \[2, 2\], expected \[3, 2\]"),
    ("fp8-tiles", put("weight", lambda w: w.view(torch.uint8).fill_(0x7F).view(torch.float8_e4m3fn)), "up_proj.weight"),
    ("nf4", put("weight", lambda w: w[1:]), "up_proj.weight .*shape"),
    ("nf4", without("weight.absmax"), "lacks the tensor .*absmax"),
    ("nf4-nested", without("weight.nested_absmax"), "lacks the tensor .*nested_absmax"),
    ("nf4", put("weight.quant_state.bitsandbytes__nf4", lambda s: s[:-2]), "quant_state.* is not valid JSON"),
    ("mlx-4", without("biases"), "lacks the tensor .*up_proj.biases"),
    ("mlx-4", put("weight", lambda w: w[:, 1:]), "up_proj.weight"),
    ("mlx-4", put("scales", lambda s: s[1:]), "up_proj.scales .*shape"),
    ("fp8-rows", kv_scale("k_scale", -0.5), "self_attn.k_scale .*above 0"),
    ("fp8-rows", kv_scale("v_scale", float("nan")), "self_attn.v_scale holds numbers that are NaN"),
    ("modelopt-nvfp4", without("weight_scale_2"), "lacks the tensor .*weight_scale_2"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG, ids=[f"{n}-{m[:24]}" for n, _, m in WRONG])
def test_tensors_that_are_wrong(name, change, message, tmp_path):
    make(tmp_path, WAYS[name], ("up_proj.weight", "gate_proj.weight"))
    path = tmp_path / "quantized" / "model.safetensors"
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
    change(tensors)
    torch_files.save_file(tensors, path)
    with pytest.raises(CorruptModel, match=message):
        load(tmp_path / "quantized")


def test_a_file_that_ends_early(tmp_path):
    make(tmp_path, WAYS["gptq-4"], ("up_proj.weight",))
    path = tmp_path / "quantized" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CorruptModel, match="model.safetensors is not a sound safetensors file"):
        load(tmp_path / "quantized")


def test_a_config_without_quantized_tensors(tmp_path):
    make(tmp_path, WAYS["gptq-4"], ("up_proj.weight",))
    config = json.loads((tmp_path / "quantized" / "config.json").read_text())
    (tmp_path / "plain" / "config.json").write_text(json.dumps(config))
    with pytest.raises(CorruptModel, match="GPTQ.*no tensor is"):
        load(tmp_path / "plain")


def gptq(**members: Any) -> dict[str, Any]:
    return {"quant_method": "gptq", "bits": 4, "group_size": 128, **members}


def compressed(weights: dict[str, Any], **members: Any) -> dict[str, Any]:
    group = {"targets": ["Linear"], "weights": {"num_bits": 4, **weights}}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"a": group}, **members}


REFUSED: list[tuple[dict[str, Any], type[ModelError], str]] = [
    ({"quant_method": "exl3"}, UnsupportedModel, "'exl3' cannot be read.*gptq, awq.*original checkpoint"),
    ({"quant_method": "aqlm"}, UnsupportedModel, "aqlm"),
    (gptq(bits=5), UnsupportedModel, "bits '5'"),
    (gptq(bits="four"), CorruptModel, "bits"),
    (gptq(checkpoint_format="marlin"), UnsupportedModel, "checkpoint_format 'marlin'"),
    (gptq(dynamic={"a": 1}), CorruptModel, "dynamic"),
    ({"quant_method": "awq", "bits": 3}, UnsupportedModel, "bits '3'"),
    ({"quant_method": "awq", "version": "marlin"}, UnsupportedModel, "version 'marlin'"),
    ({"quant_method": "fp8", "weight_block_size": [128]}, CorruptModel, "weight_block_size"),
    ({"quant_method": "compressed-tensors"}, CorruptModel, "config_groups"),
    (compressed({}, format="marlin-24"), UnsupportedModel, "marlin-24"),
    (compressed({}, sparsity_config={"format": "sparse-24-bitmask"}), UnsupportedModel, "sparse-24"),
    (compressed({}, transform_config={"config_groups": {"u": {}}}), UnsupportedModel, "transform_config"),
    (compressed({}, kv_cache_scheme={"symmetric": False}), UnsupportedModel, "kv_cache_scheme.*symmetric"),
    (compressed({"strategy": "group"}), CorruptModel, "group_size"),
    (compressed({"strategy": "token"}), CorruptModel, "strategy"),
    ({"quant_method": "modelopt", "quant_algo": "W4A16_AWQ"}, UnsupportedModel, "W4A16_AWQ"),
    ({"quant_method": "auto-round", "packing_format": "auto_round:x", "bits": 4}, UnsupportedModel, "packing_format"),
]


@pytest.mark.parametrize(("quantization", "error", "message"), REFUSED)
def test_configs_that_are_refused(quantization, error, message):
    with pytest.raises(error, match=message):
        scheme_of({"quantization_config": quantization})


def test_mlx_modes_that_are_refused():
    for members, message in (
        ({"mode": "other", "bits": 4, "group_size": 16}, "mode 'other'.*affine, mxfp4, nvfp4, mxfp8"),
        ({"bits": 7, "group_size": 64}, "bits '7'"),
        ({"mode": "nvfp4", "bits": 4, "group_size": 32}, "group_size '32'"),
    ):
        with pytest.raises(UnsupportedModel, match=message):
            scheme_of({"quantization": members})


def test_every_method_has_a_way_in_the_tests():
    named = {way.config["quantization_config"].get("quant_method") for way in WAYS.values()} - {None}
    others = {"bitnet"}  # in test_bitnet.py; the other three are in test_mixtures.py
    assert set(METHODS) - named == {"fbgemm_fp8", "mxfp4", "auto-round"} | others


def test_an_expression_that_is_none(tmp_path):
    way = WAYS["ct-4"]
    config = {**way.config["quantization_config"], "ignore": ["re:("]}
    make(tmp_path, way, ("up_proj.weight",))
    (tmp_path / "quantized" / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": config}))
    with pytest.raises(CorruptModel, match="no regular expression"):
        load(tmp_path / "quantized")


def test_ignored_modules_must_not_be_quantized(tmp_path):
    way = WAYS["ct-4"]
    config = {**way.config["quantization_config"], "ignore": ["re:.*up_proj"]}
    make(tmp_path, way, ("up_proj.weight",))
    (tmp_path / "quantized" / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": config}))
    with pytest.raises(UnsupportedModel, match="up_proj is in quantization_config.ignore"):
        load(tmp_path / "quantized")


@pytest.mark.parametrize("part", ["scale_q", "zero_q", "meta_scale"])
def test_quantized_scales_of_hqq_are_refused_by_name(part):
    tensors = {f"model.layers.0.x.{part}": None}
    with pytest.raises(UnsupportedModel, match=part) as caught:
        HqqMatrix.of(StoredTensors(tensors), "model.layers.0.x", Held())
    assert "quant_scale=False" in caught.value.fix
