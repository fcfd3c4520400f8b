"""Checkpoints whose layers differ, layers that are left out, configs next to config.json, banks of gpt-oss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from tests.lazily import torch, torch_files
from tests.models.families.stored import write_checkpoint
from tests.models.parity import relative_error
from tests.weights.checkpoints import random_tensors, write
from tests.weights.quantized import packers
from tests.weights.quantized.formats import WAYS, Way
from tests.weights.quantized.packers import Packed
from tests.weights.quantized.test_formats import LLAMA, logits, make
from twostroke.ops.operands import PackedWeight
from twostroke.ops.program.values import HeadRows, Tensor, Weight
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import read_folder
from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.types.spec.formats import BF16
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.blobs import Blob, MemoryTarget
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packing.stored_packing import StoredPacking
from twostroke.weights.quantized.tensor import QuantizedTensor
from twostroke.weights.stored import kept_sentence, stored_formats, tell_stored

LAYER = "model.layers.0."
DOWN, UP, GATE = (f"{LAYER}mlp.{name}_proj" for name in ("down", "up", "gate"))


def parts_of(module: str, packed: Packed) -> dict[str, torch.Tensor]:
    return {f"{module}.{part}": values for part, values in packed.tensors.items()}


def checkpoint_of(folder: Path, config: dict[str, Any], modules: dict[str, Packed]) -> Path:
    """A llama with these modules quantized and all others plain."""
    tensors = {name: torch.from_numpy(values).bfloat16() for name, values in random_tensors(LLAMA).items()}
    for module, packed in modules.items():
        del tensors[module + ".weight"]
        tensors |= parts_of(module, packed)
    return write(folder, {**LLAMA, **config}, tensors)


def assert_reads(folder: Path, modules: dict[str, Packed]) -> None:
    with Checkpoint.open(folder) as checkpoint:
        for module, packed in modules.items():
            found = checkpoint.read(module + ".weight")
            np.testing.assert_allclose(found, packed.values, rtol=3e-7, atol=1e-9, err_msg=module)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def test_gptq_with_dynamic_settings(rng, tmp_path):
    """GPTQModel writes such settings: an expression with other bits, and one that leaves modules out."""
    dynamic = {"+:.*down_proj": {"bits": 8, "group_size": 64}, r"-:.*self_attn.*": {}}
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False, "dynamic": dynamic}
    modules = {
        DOWN: packers.gptq(packers.draw(rng, (256, 384), 8, 64), 8),
        UP: packers.gptq(packers.draw(rng, (384, 256), 4, 128), 4),
        GATE: packers.gptq(packers.draw(rng, (384, 256), 4, 128), 4, index=False),
    }
    folder = checkpoint_of(tmp_path, {"quantization_config": config}, modules)
    assert_reads(folder, modules)
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        sentence = kept_sentence(model, checkpoint)
        assert sentence == (
            "Quantized weights: GPTQ 4-bit, groups of 128: kept as it is, 4.5 bits a weight; "
            "GPTQ 8-bit, groups of 64: kept as it is, 9 bits a weight."
        )


def test_compressed_tensors_with_two_groups(rng, tmp_path):
    """Names before "Linear"; a format of a group's own; ignored modules are plain."""
    four = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 128}
    eight = {"num_bits": 8, "type": "float", "symmetric": True, "strategy": "block", "block_structure": [128, 128]}
    groups = {
        "group_0": {"targets": ["Linear"], "weights": four, "format": "pack-quantized"},
        "group_1": {"targets": ["re:.*down_proj$"], "weights": eight, "format": "float-quantized"},
    }
    config = {
        "quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": groups,
        "ignore": ["lm_head", "re:.*self_attn.*", GATE],
    }  # fmt: skip
    modules = {
        DOWN: packers.tiled(rng, (256, 384), (128, 128), "weight_scale"),
        UP: packers.compressed_packed(packers.draw(rng, (384, 256), 4, 128, symmetric=True), 4, True),
    }
    folder = checkpoint_of(tmp_path, {"quantization_config": config}, modules)
    assert_reads(folder, modules)
    with Checkpoint.open(folder) as checkpoint:
        found = {each.matrix.words for each in checkpoint.tensors.values() if isinstance(each, QuantizedTensor)}
        assert found == {"compressed-tensors 4-bit, groups of 128", "compressed-tensors FP8, tiles of 128 x 128"}
    groups.pop("group_0")
    (folder / "config.json").write_text(json.dumps({**LLAMA, "quantization_config": config}))
    with pytest.raises(UnsupportedModel, match="up_proj is quantized, and no config group"):
        Checkpoint.open(folder)


def test_mlx_with_layers_of_their_own(rng, tmp_path):
    """The embedding, which is also the head, is quantized too."""
    own = {"group_size": 64, "bits": 4, DOWN: {"group_size": 32, "bits": 6}, UP: False}
    table = packers.mlx(rng, (96, 256), 4, 64, "float16")
    modules = {
        DOWN: packers.mlx(rng, (256, 384), 6, 32, "float16"),
        GATE: packers.mlx(rng, (384, 256), 4, 64, "float16"),
        "model.embed_tokens": table,
    }
    tied = {"tie_word_embeddings": True, "quantization": own}
    tensors = {
        n: torch.from_numpy(v).bfloat16()
        for n, v in random_tensors({**LLAMA, **tied}).items()
        if n != "model.embed_tokens.weight"
    }
    for module, packed in modules.items():
        tensors.pop(module + ".weight", None)
        tensors |= parts_of(module, packed)
    folder = write(tmp_path, {**LLAMA, **tied}, tensors)
    assert_reads(folder, modules)
    stored = {weight.parts[0].name: weight.stored for weight in read_folder(folder).program.weights}
    assert stored["model.embed_tokens.weight"].kind.name == "AFFINE4_64"


STACKED = {"qwen3-moe": ("mlp", "{}_proj"), "mixtral": ("block_sparse_moe", "{}")}


@pytest.mark.parametrize("family", STACKED)
def test_experts_of_mlx_in_stacks(family, rng, tmp_path):
    """Each expert's matrix is read from the stack under the name that the family's checkpoints have."""
    block, name = STACKED[family]
    theirs = {"gate": "w1", "down": "w2", "up": "w3"} if family == "mixtral" else {n: n for n in ("gate", "down", "up")}
    modules, tensors = {}, {}
    for own, found in theirs.items():
        experts = [packers.mlx(rng, (64, 128), 4, 64, "float16") for _ in range(3)]
        for part in experts[0].tensors:
            stack = torch.stack([expert.tensors[part] for expert in experts])
            tensors[f"{LAYER}{block}.switch_mlp.{own}_proj.{part}"] = stack
        modules |= {f"{LAYER}{block}.experts.{at}.{name.format(found)}": expert for at, expert in enumerate(experts)}
    config = {"quantization": {"group_size": 64, "bits": 4}}
    folder = write(tmp_path / "whole", {**LLAMA, **config}, tensors)
    assert_reads(folder, modules)
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.names == {f"{module}.weight" for module in modules}
    less = f"{LAYER}{block}.switch_mlp.up_proj.biases"
    folder = write(tmp_path / "fewer", {**LLAMA, **config}, {**tensors, less: tensors[less][:2].clone()})
    with pytest.raises(CorruptModel, match=r"of 3 experts"):
        Checkpoint.open(folder)


def test_matrices_whose_columns_cannot_be_sorted_are_expanded(rng, tmp_path):
    """gate and up are one product here, with orders that differ. down has groups of unequal sizes."""
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False, "desc_act": True}
    drawn = {
        UP: packers.draw(rng, (384, 256), 4, 128, order=True),
        GATE: packers.draw(rng, (384, 256), 4, 128),
        DOWN: packers.draw(rng, (256, 384), 4, 128, order=True),
    }
    drawn[DOWN].group_of[:] = np.minimum(drawn[DOWN].group_of, 1)
    modules = {name: packers.gptq(each, 4) for name, each in drawn.items()}
    folder = checkpoint_of(tmp_path, {"quantization_config": config}, modules)
    assert_reads(folder, modules)
    for weight in read_folder(folder).program.weights:
        assert weight.order is None and weight.stored == BF16


@pytest.mark.parametrize("packing", ["gptq", "awq"])
def test_auto_round_is_packed_as_another_format(packing, rng, tmp_path):
    drawn = packers.draw(rng, (256, 384), 4, 64)
    modules = {DOWN: packers.gptq(drawn, 4) if packing == "gptq" else packers.awq(drawn)}
    config = {
        "quant_method": "auto-round", "packing_format": f"auto_round:auto_{packing}", "bits": 4, "group_size": 64,
        "sym": False,
    }  # fmt: skip
    assert_reads(checkpoint_of(tmp_path, {"quantization_config": config}, modules), modules)


@pytest.mark.parametrize(
    ("name", "text", "way"),
    [
        ("quantize_config.json", {"bits": 4, "group_size": 128, "sym": False, "desc_act": False}, WAYS["gptq-4"]),
        ("quant_config.json", {"w_bit": 4, "q_group_size": 64, "version": "GEMM", "zero_point": True}, WAYS["awq"]),
        ("hf_quant_config.json", {"quantization": {"quant_algo": "NVFP4"}}, WAYS["modelopt-nvfp4"]),
    ],
)
def test_configs_beside_config_json(name, text, way, tmp_path):
    numbers = make(tmp_path, Way({}, way.pack, way.words, way.kept), ("down_proj.weight",))
    folder = tmp_path / "quantized"
    (folder / name).write_text(json.dumps(text))
    with Checkpoint.open(folder) as checkpoint:
        np.testing.assert_allclose(checkpoint.read(DOWN + ".weight"), numbers[DOWN + ".weight"], rtol=3e-7, atol=1e-9)


def test_fp8_of_fbgemm_and_the_scales_of_activations(rng, tmp_path):
    packed = packers.tiled(rng, (256, 384), (1, 384), "weight_scale")
    more = Packed({**packed.tensors, "input_scale": torch.ones(1), "input_scale_ub": torch.ones(1)}, packed.values)
    folder = checkpoint_of(tmp_path, {"quantization_config": {"quant_method": "fbgemm_fp8"}}, {DOWN: more})
    assert_reads(folder, {DOWN: packed})


def test_three_bits_as_gptqmodel_takes_one_off(rng, tmp_path):
    """It subtracts other constants from whole words (its convert_gptq_v2_to_v1_format). Symmetric zero points show
    this, or else the name of the writer in the file."""
    constants = np.array([0x24924924, 0x92492492, 0x49249249], np.uint32)
    for symmetric, writer in ((True, "unknown"), (False, "gptqmodel:7.7.0")):
        drawn = packers.draw(rng, (256, 384), 3, 128, symmetric=symmetric)
        packed = packers.gptq(drawn, 3, v1=False)
        words = packed.tensors["qzeros"].numpy().view(np.uint32)
        less = (words - np.resize(constants, words.shape[1])).view(np.int32)
        packed.tensors["qzeros"] = torch.from_numpy(less)
        config = {
            "quant_method": "gptq", "bits": 3, "group_size": 128, "sym": symmetric, "meta": {"quantizer": [writer]},
        }  # fmt: skip
        folder = checkpoint_of(tmp_path / writer, {"quantization_config": config}, {DOWN: packed})
        assert_reads(folder, {DOWN: packed})


def test_banks_of_gpt_oss(rng, tmp_path):
    """They are blocks of each expert's rows. The numbers are transposed, as transformers does."""
    experts, columns, rows = 3, 40, 64
    codes, numbers = packers.small_floats(rng, (experts, columns, rows))
    powers = rng.integers(120, 130, (experts, columns, rows // 32))
    values = numbers * np.repeat(2.0 ** (powers - 127.0), 32, axis=2)
    name = f"{LAYER}mlp.experts.gate_up_proj"
    tensors = {
        name + "_blocks": torch.from_numpy(codes.reshape(experts, columns, rows // 32, 16)),
        name + "_scales": torch.from_numpy(powers.astype(np.uint8)),
    }
    tmp_path.joinpath("config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    torch_files.save_file(tensors, tmp_path / "model.safetensors")
    with Checkpoint.open(tmp_path) as checkpoint:
        assert checkpoint.info(name).shape == (experts, rows, columns)
        assert np.array_equal(checkpoint.read(name), values.transpose(0, 2, 1))
        assert np.array_equal(checkpoint.read_rows(name, 1, 1), values.transpose(0, 2, 1)[1:2])


def test_banks_of_gpt_oss_are_kept_as_they_are(rng, tmp_path):
    """They are asked for transposed, as a program reads them, with rows of gate and up in turn."""
    experts, rows, columns = 3, 96, 128
    codes, numbers = packers.small_floats(rng, (experts, rows, columns))
    powers = rng.integers(120, 130, (experts, rows, columns // 32))
    values = (numbers * np.repeat(2.0 ** (powers - 127.0), 32, axis=2)).astype(np.float32)
    tensors = {
        "bank_blocks": torch.from_numpy(codes.reshape(experts, rows, columns // 32, 16)),
        "bank_scales": torch.from_numpy(powers.astype(np.uint8)),
    }
    tmp_path.joinpath("config.json").write_text(json.dumps({"quantization_config": {"quant_method": "mxfp4"}}))
    torch_files.save_file(tensors, tmp_path / "model.safetensors")
    order = HeadRows(1, rows, rows, pairs=rows // 2)
    parts = tuple(Tensor("bank", (experts, columns, rows), True, order=order, matrix=each) for each in range(experts))
    with Checkpoint.open(tmp_path) as checkpoint:
        chosen = stored_formats(checkpoint)(parts)
        assert chosen is not None and chosen.kind.name == "E2M1_32"
        weight = Weight("bank:down", "down", rows, columns, parts, experts=experts, stored=chosen)
        target = MemoryTarget((Blob("bank:down.data", experts * chosen.data_bytes(rows, columns)),))
        told: list[int] = []
        with StoredPacking(target, checkpoint, NumpyPacker()) as packing:
            packing.add(weight, chosen, told.append)
        assert sum(told) == checkpoint.info("bank").num_bytes
        plain = (Tensor("bank", (experts, columns, rows), matrix=0),)
        assert stored_formats(checkpoint)(plain) == BF16
    packed = PackedWeight(chosen, rows, columns, target.blobs["bank:down.data"], experts=experts)
    for each in range(experts):
        assert np.array_equal(unpack(packed.expert(each)), values[each][list(order.index)])


def test_gpt_oss_as_it_is_published(tmp_path):
    """This is transformers' own model with its banks in blocks, which are kept with the logits of their numbers."""
    write_checkpoint("gpt-oss-96", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    with safe_open(tmp_path / "hf" / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    rng, plain = np.random.default_rng(2), dict(tensors)
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        count, columns, rows = tensors.pop(name).shape
        codes, numbers = packers.small_floats(rng, (count, rows, columns))
        powers = rng.integers(120, 124, (count, rows, columns // 32))
        values = numbers * np.repeat(2.0 ** (powers - 127.0), 32, axis=2)
        plain[name] = torch.from_numpy(values.astype(np.float32)).transpose(1, 2).contiguous()
        tensors[name + "_blocks"] = torch.from_numpy(codes.reshape(count, rows, columns // 32, 16))
        tensors[name + "_scales"] = torch.from_numpy(powers.astype(np.uint8))
    ours = write(tmp_path / "ours", {**config, "quantization_config": {"quant_method": "mxfp4"}}, tensors)
    theirs = write(tmp_path / "theirs", config, plain)
    banks = [weight for weight in read_folder(ours).program.weights if weight.experts]
    assert {weight.stored.kind.name for weight in banks} == {"E2M1_32"} and len(banks) == 8
    ids = np.random.default_rng(5).integers(0, 90, 24).tolist()
    expected = logits(theirs, "f32", ids)
    assert relative_error(logits(ours, STORED, ids), expected) < 0.03
    assert np.array_equal(logits(ours, "f32", ids), expected)


def test_a_language_model_in_a_checkpoint_that_sees_images(rng, tmp_path, capsys):
    """Its tensors have other names in the files than in the program."""
    write_checkpoint("gemma3-with-images", tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    with safe_open(tmp_path / "model.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    names = [name for name in tensors if "language_model" in name and name.endswith("_proj.weight")]
    for name in names:
        packed = packers.int8_rows(rng, tuple(tensors.pop(name).shape))
        tensors |= parts_of(name.removesuffix(".weight"), packed)
    quantized = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    write(tmp_path, {**config, "quantization_config": quantized}, tensors)
    model = read_folder(tmp_path)
    kinds = {weight.role: weight.stored.kind.name for weight in model.program.weights if weight.stored}
    assert len(names) >= 7 and kinds["qkv"] == "AFFINE8_64"
    with Checkpoint.open(tmp_path) as checkpoint:
        load_weights(checkpoint, model, format_choice(STORED), NumpyPacker())
        tell_stored(model, checkpoint, print)
    assert "Quantized weights: bitsandbytes INT8, one scale a row: kept as it is" in capsys.readouterr().out
