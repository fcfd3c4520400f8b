"""From a checkpoint to packed weights: fusing, formats, dtypes, shards, and checkpoints that do not fit."""

from __future__ import annotations

import json
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tests.weights.checkpoints import BIASED, CONFIG, QWEN2, QWEN3, random_tensors, write
from twostroke.models.common.registry import read_model
from twostroke.ops.operands import PackedWeight
from twostroke.ops.program.values import Weight
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import load_folder
from twostroke.types.errors import CorruptModel, ModelError, ModelNotFound, UnsupportedModel
from twostroke.types.spec.formats import BF16, F32, WeightFormat, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packing import rounded_packing

INT8 = WeightFormat(WeightKind.INT8, 64)
INT4 = WeightFormat(WeightKind.INT4, 64)
ALL_CONFIGS = pytest.mark.parametrize(
    "config", [CONFIG, BIASED, QWEN2, QWEN3], ids=["llama", "biased", "qwen2", "qwen3"]
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """One panel for each block, so that tiny matrices take the path of large ones."""
    monkeypatch.setattr(rounded_packing, "BLOCK_BYTES", 1)


def expected_matrices(config, tensors) -> dict[str, tuple[np.ndarray, np.ndarray | None]]:
    """Fused matrices and biases, put together once more with NumPy."""
    found = {"embedding": (tensors["model.embed_tokens.weight"], None)}
    for i in range(config["num_hidden_layers"]):
        for key, names in {
            "qkv": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
            "o": ["self_attn.o_proj"],
            "gate_up": ["mlp.gate_proj", "mlp.up_proj"],
            "down": ["mlp.down_proj"],
        }.items():
            layer = f"model.layers.{i}."
            matrix = np.concatenate([tensors[f"{layer}{name}.weight"] for name in names])
            biases = [tensors[f"{layer}{name}.bias"] for name in names if f"{layer}{name}.bias" in tensors]
            found[f"{i}.{key}"] = (matrix, np.concatenate(biases) if biases else None)
    return found


def check_against(config, tensors, weights, weight_format) -> None:
    expected = expected_matrices(config, tensors)
    if not config["tie_word_embeddings"]:
        expected["head"] = (tensors["lm_head.weight"], None)
    found = {short(key): packed for key, packed in weights.matrices.items()}
    assert found.keys() == expected.keys()
    for key, packed in found.items():
        matrix, bias = expected[key]
        assert_same(packed, pack_weight(matrix, weight_format, bias), key)
    norms = {name: tensor for name, tensor in tensors.items() if "norm" in name}
    named = {key.partition(":")[0]: vector for key, vector in weights.vectors.items()}
    shared = {name: named.pop(name) for name in tensors if name.endswith("k_proj.bias") and name in named}
    is_normed = any("k_norm" in name for name in tensors)  # a norm after the bias leaves no shared part
    assert shared.keys() == {name for name in tensors if name.endswith("k_proj.bias") and not is_normed}
    for name, vector in shared.items():  # turned and shorter: each pair keeps at most its length
        pairs = [each.reshape(-1, 2, config["head_dim"] // 2) for each in (vector, tensors[name])]
        one, other = (np.hypot(each[:, 0], each[:, 1]) for each in pairs)
        assert vector.any() and (one <= other * 1.0001).all()
    vectors = {name + ".weight": vector for name, vector in named.items()}
    assert vectors.keys() == norms.keys()
    assert all(np.array_equal(vector, norms[name]) for name, vector in vectors.items())


def short(key: str) -> str:
    """ "model.layers.1.mlp.down_proj:down" -> "1.down"."""
    name, _, role = key.partition(":")
    return f"{name.split('.')[2]}.{role}" if ".layers." in name else role


def by_short(weights: ModelWeights) -> dict[str, PackedWeight]:
    return {short(key): packed for key, packed in weights.matrices.items()}


def assert_same(found: PackedWeight, expected: PackedWeight, key: str) -> None:
    assert (found.format, found.rows, found.columns) == (expected.format, expected.rows, expected.columns), key
    assert np.array_equal(found.data, expected.data), key
    assert found.data.ctypes.data % 64 == 0, key
    for one, other in ((found.scales, expected.scales), (found.bias, expected.bias)):
        assert (one is None) == (other is None), key
        assert one is None or np.array_equal(one.reshape(-1), other.reshape(-1)), key


@pytest.mark.parametrize("weight_format", [F32, BF16, INT8, INT4], ids=["f32", "bf16", "int8", "int4"])
@ALL_CONFIGS
def test_every_family_in_every_format(config, weight_format, tmp_path):
    tensors = random_tensors(config)
    spec, weights = load_folder(write(tmp_path, config, tensors), weight_format)
    assert spec.parameters() == sum(tensor.size for tensor in tensors.values())
    check_against(config, tensors, weights, weight_format)


@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_every_stored_dtype(dtype, tmp_path):
    tensors = random_tensors(BIASED, dtype)
    _, weights = load_folder(write(tmp_path, BIASED, tensors, 3, dtype), F32)
    check_against(BIASED, tensors, weights, F32)


def test_parts_of_one_matrix_in_different_dtypes(tmp_path):
    tensors, attention = random_tensors(CONFIG), "model.layers.0.self_attn."
    dtypes = {f"{attention}q_proj.weight": "BF16", f"{attention}k_proj.weight": "F16"}
    for name, dtype in dtypes.items():
        tensors[name] = random_tensors(CONFIG, dtype)[name]
    _, weights = load_folder(write(tmp_path, CONFIG, tensors, dtype=dtypes), F32)
    check_against(CONFIG, tensors, weights, F32)


def test_formats_by_role_and_block_sizes(tmp_path, monkeypatch):
    tensors = random_tensors(CONFIG, "BF16")
    spec = read_model(CONFIG)
    write(tmp_path, CONFIG, tensors, dtype="BF16")

    def choose(weight: Weight) -> WeightFormat:
        return BF16 if weight.role in ("embedding", "head") else INT8

    results = []
    for block_bytes in (1, 20_000, 1 << 24):
        monkeypatch.setattr(rounded_packing, "BLOCK_BYTES", block_bytes)
        with Checkpoint.open(tmp_path) as checkpoint:
            results.append(by_short(load_weights(checkpoint, spec, choose, NumpyPacker())))
    assert results[0]["head"].format == BF16 and results[0]["1.down"].format == INT8
    for other in results[1:]:
        for key, one in results[0].items():
            assert np.array_equal(one.data, other[key].data), key
            assert one.scales is None or np.array_equal(one.scales, other[key].scales), key


def test_progress_goes_up_to_the_bytes_of_the_checkpoint(tmp_path):
    tensors = random_tensors(CONFIG)
    seen = []
    load_folder(write(tmp_path, CONFIG, tensors), F32, progress=lambda *step: seen.append(step))
    done = [step[0] for step in seen]
    assert done == sorted(done) and done[-1] == seen[-1][1] == sum(t.nbytes for t in tensors.values())
    assert {step[1] for step in seen} == {done[-1]} and all(step[2] in tensors for step in seen)


def test_peak_memory_is_packed_weights_and_a_block(tmp_path, monkeypatch):
    monkeypatch.setattr(rounded_packing, "BLOCK_BYTES", 1 << 16)
    config = {**CONFIG, "hidden_size": 256, "intermediate_size": 1024, "vocab_size": 4000, "head_dim": 64}
    folder = write(tmp_path, config, random_tensors(config))
    spec = read_model(config)
    packed_bytes = spec.weight_bytes(lambda weight: INT8)
    tracemalloc.start()
    load_folder(folder, INT8)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert packed_bytes > 2_000_000
    # The codec's own temporaries for one block are counted too; the float32 model would be four times the packed one.
    assert peak_bytes < packed_bytes + 40 * (1 << 16)


def break_and_load(tmp_path: Path, config, tensors, error: type[ModelError], words: str, dtype: str = "F32") -> None:
    with pytest.raises(error, match=words) as caught:
        load_folder(write(tmp_path, config, tensors, dtype=dtype), F32)
    assert caught.value.why and caught.value.fix


def test_missing_unexpected_and_misshapen_tensors(tmp_path):
    whole = random_tensors(CONFIG)
    name = "model.layers.1.mlp.up_proj.weight"
    break_and_load(tmp_path, CONFIG, {k: v for k, v in whole.items() if k != name}, CorruptModel, name)
    headless = {k: v for k, v in whole.items() if k != "lm_head.weight"}
    break_and_load(tmp_path, CONFIG, headless, CorruptModel, "tie_word_embeddings")
    break_and_load(tmp_path, CONFIG, {**whole, "model.extra": np.zeros(1, np.float32)}, CorruptModel, "model.extra")
    for shape in ((72, 41), (40, 72), (72 * 40,), (72, 40, 1)):
        wrong = {**whole, name: np.zeros(shape, np.float32)}
        break_and_load(tmp_path, CONFIG, wrong, CorruptModel, rf"{name} has the shape \[.*expected \[72, 40\]")


def test_biases_that_the_config_does_not_announce(tmp_path):
    break_and_load(tmp_path, CONFIG, random_tensors(BIASED), CorruptModel, "attention_bias")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 2.0**60, -(2.0**60)])
@pytest.mark.parametrize("dtype", ["F32", "BF16", "F16"])
def test_weights_that_no_codec_takes(dtype, value, tmp_path):
    tensors = random_tensors(CONFIG, dtype)
    tensors["model.layers.1.self_attn.k_proj.weight"][7, 3] = value
    break_and_load(tmp_path, CONFIG, tensors, CorruptModel, "NaN, infinite or beyond", dtype)


def readers() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("twostroke-read")]


def test_rows_are_read_while_those_before_are_packed(tmp_path, monkeypatch):
    """The packer waits until the next block is read. It would wait for ever for a reader that waits for it."""
    read, packed = threading.Semaphore(0), []
    whole = rounded_packing.RoundedPacking._read
    monkeypatch.setattr(rounded_packing.RoundedPacking, "_read", lambda *given: (whole(*given), read.release())[0])

    class Waiting(NumpyPacker):
        def pack(self, source, weight_format, data, scales):
            is_last = len(packed) + 1 == blocks
            packed.append(read.acquire(timeout=60) and (is_last or read.acquire(timeout=60)))
            read.release()  # the next block counts for the next call, too
            super().pack(source, weight_format, data, scales)

    tensors, spec = random_tensors(CONFIG), read_model(CONFIG)
    blocks = sum(-(-weight.rows // 64) for weight in spec.program.weights)
    with Checkpoint.open(write(tmp_path, CONFIG, tensors)) as checkpoint:
        weights = load_weights(checkpoint, spec, lambda weight: F32, Waiting())
    check_against(CONFIG, tensors, weights, F32)
    assert len(packed) == blocks > 4 and all(packed) and readers() == []


@pytest.mark.parametrize("fault", [OSError("the disk"), MemoryError()])
def test_what_fails_in_the_thread_that_reads_ends_the_load(fault, tmp_path, monkeypatch):
    def fail(*given):
        raise fault

    monkeypatch.setattr(rounded_packing._Rows, "read", fail)
    with pytest.raises(type(fault)):
        load_folder(write(tmp_path, CONFIG, random_tensors(CONFIG)), F32)
    assert readers() == []


def test_integer_checkpoints_are_refused(tmp_path):
    tensors = random_tensors(CONFIG)
    tensors["model.layers.0.mlp.down_proj.weight"] = np.zeros((40, 72), np.int8)
    break_and_load(tmp_path, CONFIG, tensors, UnsupportedModel, "dtype I8")


def test_harmless_extras_are_ignored(tmp_path):
    tensors = random_tensors(QWEN2)
    extra = {
        "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(6, np.float32),
        "lm_head.weight": tensors["model.embed_tokens.weight"].copy(),
    }
    _, weights = load_folder(write(tmp_path, QWEN2, {**tensors, **extra}), F32)
    found = by_short(weights)
    assert "head" not in found
    assert np.array_equal(unpack(found["embedding"]), tensors["model.embed_tokens.weight"])


def test_shards(tmp_path):
    folder = write(tmp_path, CONFIG, random_tensors(CONFIG), shards=4)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    with Checkpoint.open(folder) as checkpoint:
        assert checkpoint.names == index["weight_map"].keys()
        assert np.array_equal(
            checkpoint.read_rows("lm_head.weight", 3, 4), random_tensors(CONFIG)["lm_head.weight"][3:7]
        )
    (folder / "model-00002-of-00004.safetensors").unlink()
    with pytest.raises(CorruptModel, match="model-00002-of-00004.safetensors"):
        Checkpoint.open(folder)


@pytest.mark.parametrize(
    "shard",
    ["../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "a\\b.safetensors", "x.bin", ".safetensors", "", 3],
)
def test_shards_outside_the_folder_are_refused(shard, tmp_path):
    (tmp_path.parent / "x.safetensors").touch()
    folder = write(tmp_path, CONFIG, random_tensors(CONFIG), shards=2)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["lm_head.weight"] = shard
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptModel, match="without folders"):
        Checkpoint.open(folder)


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": 1, "weight_map": 2}']
)
def test_broken_indexes_are_refused(content, tmp_path):
    (tmp_path / "model.safetensors.index.json").write_text(content)
    with pytest.raises(CorruptModel, match=r"index\.json"):
        Checkpoint.open(tmp_path)


def test_a_tensor_that_its_shard_does_not_hold(tmp_path):
    folder = write(tmp_path, CONFIG, random_tensors(CONFIG), shards=2)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    index["weight_map"]["model.ghost"] = "model-00001-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptModel, match=r"does not hold tensor model\.ghost"):
        Checkpoint.open(folder)


def test_folders_without_safetensors(tmp_path):
    with pytest.raises(ModelNotFound, match="no folder"):
        Checkpoint.open(tmp_path / "none")
    with pytest.raises(ModelNotFound, match="no weights"):
        Checkpoint.open(tmp_path)
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(UnsupportedModel, match=r"pytorch_model\.bin"):
        Checkpoint.open(tmp_path)
    with pytest.raises(CorruptModel, match=r"config\.json is missing"):
        load_folder(tmp_path, F32)


def test_the_largest_weights_that_codecs_take(tmp_path):
    below = float(np.nextafter(np.float32(2.0**60), np.float32(0)))
    for dtype, value in (("F32", below), ("BF16", 2.0**59 * 1.9921875)):
        tensors = random_tensors(CONFIG, dtype)
        tensors["lm_head.weight"][0, 0] = value
        load_folder(write(tmp_path, CONFIG, tensors, dtype=dtype), INT4)
