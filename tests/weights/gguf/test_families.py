"""Every architecture: tiny checkpoints as the converter's files, compared with the folders from which they were
made."""

from __future__ import annotations

import json

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import write_checkpoint
from tests.models.parity import Loaded, relative_error
from tests.rounding import assert_same_but_for_steps, other_last_bits
from tests.weights.gguf import converted
from tests.weights.gguf.converted import recorded, write_converted
from twostroke.backends.cpu import CpuOps, NativePacker
from twostroke.models.common.forms import causal_name
from twostroke.models.common.registry import architectures, read_model
from twostroke.ops.quant.formats import STORED as STORED_AS_IS
from twostroke.ops.quant.formats import format_choice
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import read_folder
from twostroke.types.errors import UnsupportedModel
from twostroke.types.spec.formats import WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.families.table import FAMILIES as TABLE
from twostroke.weights.gguf.families.table import READ_AS, known_names
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.load import load_weights
from twostroke.weights.packed.blobs import Blob, MemoryTarget
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packing.rounded_packing import _Rows
from twostroke.weights.packing.stored_packing import StoredPacking, stored_rows
from twostroke.weights.stored import stored_formats
from twostroke.weights.tensors import check_tensors

ROUNDED = {
    "llama3-grouped",
    "phi3-longrope-long",
    "phi3-longrope-short",
    "falcon-h1-factors",
    "gemma3n",
    "apertus",
    "minicpm",
    "step-3.7-scaled",
}
"""The file has factors as float32 where config.json has decimal numbers, or factors that went into weights."""
YOUNGER = {"deepseek32", "deepseek4", "hy_v3"}
"""Architectures of llama.cpp that the package of the tests does not know yet."""


def by_heads(folder):
    """No key of the file gives the scale of scores. It follows from the heads' size, except in the model with 27B
    parameters."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    if config["model_type"] in ("gemma2", "gemma3_text"):
        path.write_text(json.dumps({**config, "query_pre_attn_scalar": config["head_dim"]}))


def without_bias(folder):
    """The converter leaves out the one bias of all experts of Nomic v2. Here it becomes zeros."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name: 0 * each if name.endswith("experts.bias") else each for name, each in tensors.items()}, path)


@pytest.mark.parametrize("family", sorted(recorded()))
def test_the_file_computes_what_the_folder_does(family, tmp_path):
    write_checkpoint(family, tmp_path / "hf")
    by_heads(tmp_path / "hf")
    if family == "nomic-bert-moe":
        without_bias(tmp_path / "hf")
    folder = unfold(write_converted(family, tmp_path / "hf", tmp_path / "x.gguf"), None)
    ids = np.random.default_rng(5).integers(0, 100, 40).tolist()
    found, expected = (Loaded(each, ReferenceOps()).run(ids, [40]) for each in (folder, tmp_path / "hf"))
    if family in ROUNDED:
        assert relative_error(found, expected) < 1e-5
    else:
        assert np.array_equal(found, expected)


def test_every_entry_has_a_model_file_and_a_family_that_is_tested():
    known = architectures()
    for name, family in TABLE.items():
        entry = known.get(family.hf) or known[causal_name(family.hf)]
        assert entry.model_type == family.model_type, name
        assert family.hf not in known or entry.form.task is family.task, name
    assert set(known_names()) - YOUNGER <= set(gguf.MODEL_ARCH_NAMES.values())
    assert set(known_names()) - {each["arch"] for each in recorded().values()} <= {"nemotron_h"}
    assert set(TABLE) >= READ_AS.keys() and {name for name, _ in READ_AS.values()} <= set(known_names())


@pytest.mark.parametrize(
    ("name", "near"), [("qwen3-moe", "qwen3moe"), ("deepseek5", "deepseek4"), ("rwkv8", "rwkv7"), ("mixtral", "")]
)
def test_an_unknown_architecture_is_refused_with_the_nearest(name, near, tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", name)
    writer.add_tensor("token_embd.weight", np.zeros((3, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match=f"the architecture '{name}' is not implemented") as caught:
        unfold(tmp_path / "x.gguf", None)
    assert near in (caught.value.fix or "")


STORED = (
    "cohere",
    "deepseek-v2-lite",
    "glm4",
    "ernie4-5",
    "gpt-oss-usual-limit",
    "granite-moe",
    "gpt-neox",
    "gpt2",
    "llama4-usual",
    "rwkv6-rescaled",
)


@pytest.fixture(scope="module")
def native():
    packer = NativePacker(None, 1)
    yield packer
    packer.close()


@pytest.mark.parametrize("family", STORED)
def test_rows_in_another_order_stacks_and_turned_matrices_are_kept_in_blocks(family, tmp_path, native):
    """The kept matrix has the values that are read as floats, and native packing equals NumPy's."""
    write_checkpoint(family, tmp_path / "hf")
    path = write_converted(family, tmp_path / "hf", tmp_path / "x.gguf", Type.Q8_0)
    folder = unfold(path, None)
    with Checkpoint.open(folder) as checkpoint:
        config = json.loads((folder / "config.json").read_text())
        model = read_model(config, stored_formats(checkpoint))
        checked = check_tensors(checkpoint, model)
        kept = [weight for weight in model.program.weights if weight.stored and weight.stored.kind.is_stored]
        assert len(kept) > len(model.program.weights) / 2
        moved = 0
        for weight in kept:
            first = 0
            for part in weight.parts:
                values = stored_rows(weight, checked, first, part.length, weight.stored.kind)
                expected = np.empty((part.length, weight.columns), np.float32)
                _Rows(checked, (part,)).read(0, expected)
                assert np.array_equal(values.values(), expected), part
                first += part.length
                moved += part.order is not None or part.transposed or part.matrix is not None
            assert np.array_equal(*(packed_by(packer, weight, checked) for packer in (native, NumpyPacker())))
        assert moved


def packed_by(packer, weight, checkpoint):
    key, size = f"{weight.key}.data", weight.matrices * weight.stored.data_bytes(weight.rows, weight.columns)
    target = MemoryTarget((Blob(key, size),))
    with StoredPacking(target, checkpoint, packer) as packing:
        packing.add(weight, weight.stored, lambda num_bytes: None)
    return target.blobs[key]


@pytest.mark.parametrize("family", ["qwen3.5", "qwen3.5-moe"])
def test_columns_in_another_order_are_kept_in_blocks(family, tmp_path):
    """Value heads lie in another order in the file. The matrix does not change, and its input takes the file's
    order."""
    write_checkpoint(family, tmp_path / "hf")
    folder = unfold(write_converted(family, tmp_path / "hf", tmp_path / "x.gguf", Type.Q8_0), None)
    model = read_folder(folder)
    sorted_weights = [weight for weight in model.program.weights if weight.order is not None]
    assert sorted_weights and {weight.role for weight in sorted_weights} == {"states_out"}
    with Checkpoint.open(folder) as checkpoint:
        loaded = load_weights(checkpoint, model, format_choice(STORED_AS_IS), NumpyPacker())
        for weight in sorted_weights:
            (part,) = weight.parts
            expected, order = checkpoint.read(part.name), loaded.vectors[weight.order.key].astype(int)
            assert loaded.matrices[weight.key].format.kind is WeightKind.FLAT8
            assert np.array_equal(unpack(loaded.matrices[weight.key]), expected[:, order])
            assert not np.array_equal(order, np.arange(len(order)))


def test_matrices_of_latent_heads_are_kept_in_blocks(tmp_path, monkeypatch):
    """keys_up is a stack of the file, although it is columns of our kv_b_proj; values_up is the other stack."""
    sizes = {"key_length": 72, "value_length": 64, "kv_lora_rank": 64, "key_length_mla": 40}
    said = recorded()["deepseek-v3"]
    keys = {**said["keys"], **{f"attention.{name}": [4, size] for name, size in sizes.items()}}
    monkeypatch.setattr(converted, "recorded", lambda: {"wide": {**said, "keys": keys}})
    write_checkpoint("wide", tmp_path / "hf")
    folder = unfold(write_converted("wide", tmp_path / "hf", tmp_path / "x.gguf", Type.Q8_0), None)
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        loaded = load_weights(checkpoint, model, format_choice(STORED_AS_IS), NumpyPacker())
        up = [weight for weight in model.program.weights if weight.role in ("keys_up", "values_up")]
        assert {loaded.matrices[weight.key].format.kind for weight in up} == {WeightKind.FLAT8} and len(up) == 6
        for weight in up:
            expected = np.empty((weight.matrices * weight.rows, weight.columns), np.float32)
            _Rows(checkpoint, weight.parts).read(0, expected)
            values = stored_rows(weight, checkpoint, 0, len(expected), WeightKind.FLAT8)
            assert np.array_equal(values.values(), expected)
    ids = np.random.default_rng(5).integers(0, 100, 9).tolist()
    native, reference, unrounded = (Loaded(folder, ops) for ops in (CpuOps(None, 1), ReferenceOps(), ReferenceOps()))
    native.weights = reference.weights = loaded  # the third keeps the same values as float32
    found, exact = native.run(ids, [9]), unrounded.run(ids, [9])
    assert_same_but_for_steps(found, reference.run(ids, [9]), exact)
    for machine in range(3):
        with other_last_bits(machine):
            assert_same_but_for_steps(found, reference.run(ids, [9]), exact)
    assert np.array_equal(found, native.run(ids, [1] * 9))
