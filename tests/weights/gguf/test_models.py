"""Tiny checkpoints of transformers, written as GGUF by the package, compared with the folders from which they were
made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from tests.models.families.stored import write_checkpoint
from tests.models.parity import Loaded, relative_error
from tests.weights.gguf.export import all_of, write_gguf
from tests.weights.gguf.files import array, info, number, raw, string, strings, write
from twostroke.ops.reference import ReferenceOps
from twostroke.runner.folder import load_folder
from twostroke.types.errors import CorruptModel, ModelError, UnsupportedModel
from twostroke.types.spec.formats import F32
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import unfold

SAME = {
    "llama-tied": "llama",
    "llama-odd-sizes": "llama",
    "qwen2-biases": "qwen2",
    "gemma": "gemma",
    "gpt2": "gpt2",
    "mixtral-experts": "llama",
    "phi3": "phi3",
}
"""Families whose weights are compared too. The results of all families are compared in test_families.py."""


@pytest.mark.parametrize("family", SAME)
def test_the_same_weights_and_logits(family, tmp_path):
    write_checkpoint(family, tmp_path / "hf")
    path = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", SAME[family])
    folder = unfold(path, tmp_path / "cache")
    theirs, their_weights = load_folder(tmp_path / "hf", F32)
    ours, our_weights = load_folder(folder, F32)
    assert ours.architecture == theirs.architecture and ours.max_positions == theirs.max_positions
    assert our_weights.matrices.keys() == their_weights.matrices.keys()
    for key, matrix in our_weights.matrices.items():
        other = their_weights.matrices[key]
        assert np.array_equal(matrix.data, other.data), key
        assert (matrix.bias is None) == (other.bias is None)
        assert matrix.bias is None or np.array_equal(matrix.bias, other.bias)
    for key, vector in our_weights.vectors.items():
        assert np.array_equal(vector, their_weights.vectors[key])
    ids = np.random.default_rng(5).integers(0, 100, 40).tolist()
    logits = [Loaded(each, ReferenceOps()).run(ids, [40]) for each in (folder, tmp_path / "hf")]
    assert np.array_equal(*logits)


def test_one_set_of_divisors_without_the_other_is_refused(tmp_path):
    write_checkpoint("phi3-longrope-long", tmp_path / "hf")
    data = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", "phi3").read_bytes()
    path = write(tmp_path / "y.gguf", data.replace(b"rope_factors_short", b"rope_factors_shorn"))
    with pytest.raises(CorruptModel, match="holds rope_factors_long.weight, and not the tensor"):
        unfold(path, None)


@pytest.mark.parametrize(
    ("family", "arch"),
    [("llama3-grouped", "llama"), ("phi3-longrope-long", "phi3"), ("phi3-longrope-short", "phi3")],
)
def test_divisors_of_the_rotation(family, arch, tmp_path):
    """These are the divisors of Llama 3, and Phi-3's two sets, where a part of each head is rotated."""
    write_checkpoint(family, tmp_path / "hf")
    folder = unfold(write_gguf(tmp_path / "hf", tmp_path / "x.gguf", arch), None)
    ids = np.random.default_rng(5).integers(0, 100, 40).tolist()
    found, expected = (Loaded(each, ReferenceOps()).run(ids, [40]) for each in (folder, tmp_path / "hf"))
    assert relative_error(found, expected) < 1e-5


@pytest.mark.parametrize("kind", [Type.F16, Type.BF16, Type.Q8_0, Type.Q4_0, Type.Q4_1, Type.Q5_0, Type.Q5_1])
def test_stored_values_are_what_is_loaded(kind, tmp_path):
    """Rows of q and k are put back into halves in every type. They are compared with the package's dequantizer."""
    write_checkpoint("llama2-multi-head", tmp_path / "hf")
    path = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", "llama", all_of(kind))
    reader = gguf.GGUFReader(path)
    stored = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    with Checkpoint.open(unfold(path, None)) as checkpoint:
        found = checkpoint.read("model.layers.1.mlp.up_proj.weight")
        values = (found.astype(np.uint32) << 16).view(np.float32) if found.dtype == np.uint16 else found
        assert np.array_equal(values, stored["blk.1.ffn_up.weight"])
        q = checkpoint.read("model.layers.0.self_attn.q_proj.weight")
        values = (q.astype(np.uint32) << 16).view(np.float32) if q.dtype == np.uint16 else q
        pairs = stored["blk.0.attn_q.weight"].reshape(4, 8, 2, 64)
        assert np.array_equal(values, pairs.swapaxes(1, 2).reshape(64, 64))
        assert np.array_equal(
            values[5:23], _floats(checkpoint.read_rows("model.layers.0.self_attn.q_proj.weight", 5, 18))
        )
        assert checkpoint.info("model.layers.0.self_attn.q_proj.weight").shape == (64, 64)


def _floats(values: np.ndarray) -> np.ndarray:
    return (values.astype(np.uint32) << 16).view(np.float32) if values.dtype == np.uint16 else values


def test_split_files_load_as_one(tmp_path):
    write_checkpoint("llama-tied", tmp_path / "hf")
    whole = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", "llama")
    write_gguf(tmp_path / "hf", tmp_path / "y.gguf", "llama", split_max_tensors=10)
    parts = sorted(tmp_path.glob("y-*.gguf"))
    assert len(parts) > 2
    one, many = (load_folder(unfold(path, None), F32)[1] for path in (whole, parts[0]))
    assert all(np.array_equal(one.matrices[key].data, many.matrices[key].data) for key in one.matrices)
    parts[1].unlink()
    with pytest.raises(CorruptModel, match="is missing"):
        unfold(parts[0], None)


KEYS: dict[str, bytes] = {
    "general.architecture": string("llama"),
    "llama.block_count": number(4, 1),
    "llama.embedding_length": number(4, 8),
    "llama.feed_forward_length": number(4, 16),
    "llama.attention.head_count": number(4, 2),
    "llama.context_length": number(4, 64),
    "llama.attention.layer_norm_rms_epsilon": number(6, 1e-5),
    "tokenizer.ggml.model": string("gpt2"),
    "tokenizer.ggml.pre": string("gpt-2"),
    "tokenizer.ggml.tokens": strings(["a", "b", "ab"]),
    "tokenizer.ggml.merges": strings(["a b"]),
}


def unfolded(tmp_path: Path, **changes: bytes | None) -> dict[str, Any]:
    keys = {**KEYS, **{name.replace("__", "."): value for name, value in changes.items()}}
    data = raw([(k, v) for k, v in keys.items() if v is not None], [info("token_embd.weight", [8, 3], 0, 0)], bytes(96))
    folder = unfold(write(tmp_path / "x.gguf", data), None)
    return json.loads((folder / "config.json").read_text())


def test_what_stands_in_the_config(tmp_path):
    config = unfolded(tmp_path, tokenizer__ggml__eos_token_id=number(4, 2), tokenizer__ggml__eot_token_id=number(4, 1))
    assert config["architectures"] == ["LlamaForCausalLM"] and config["vocab_size"] == 3
    assert config["eos_token_id"] == [1, 2] and config["tie_word_embeddings"] is True
    config = unfolded(tmp_path, llama__feed_forward_length=array(4, 2, bytes([16, 0, 0, 0] * 2)))
    assert config["intermediate_size"] == 16


@pytest.mark.parametrize(
    ("experts", "biased", "groups"),
    [(256, True, (8, 4)), (384, True, (1, 1)), (64, True, (1, 1)), (160, False, (8, 3)), (64, False, (1, 1))],
)
def test_deepseek_files_from_before_the_keys_of_groups(experts, biased, groups, tmp_path):
    """DeepSeek-V3 and V2 have groups. Kimi K2, Moonlight and V2-Lite, of the same architecture, have none."""
    heads = {"attention.key_length_mla": 8, "attention.value_length_mla": 4, "rope.dimension_count": 4}
    counts = {"expert_count": experts, "expert_used_count": 2, "attention.kv_lora_rank": 8, **heads}
    keys = {name.replace("llama", "deepseek2"): value for name, value in KEYS.items()}
    keys |= {f"deepseek2.{name}": number(4, value) for name, value in counts.items()}
    keys["general.architecture"] = string("deepseek2")
    infos = [info("token_embd.weight", [8, 3], 0, 0), info("blk.0.ffn_gate_inp.weight", [8, experts], 0, 96)]
    infos += [info("blk.0.exp_probs_b.bias", [experts], 0, 96 + 32 * experts)] if biased else []
    data = raw(keys.items(), infos, bytes(96 + 36 * experts))
    folder = unfold(write(tmp_path / "x.gguf", data), None)
    config = json.loads((folder / "config.json").read_text())
    assert (config["n_group"], config["topk_group"]) == groups
    if not biased:
        assert config["topk_method"] == ("greedy" if groups == (1, 1) else "group_limited_greedy")
    assert config.get("routed_scaling_factor", 1.0) == 1.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"general__architecture": string("plamo")}, "architecture 'plamo' is not implemented"),
        ({"general__architecture": string("mixtral")}, "architecture 'mixtral' is not implemented"),
        ({"general__architecture": None}, "architecture 'None' is not implemented"),
        ({"general__architecture": string("clip")}, "architecture 'clip'"),
        ({"llama__attention__clamp_kqv": number(6, 5.0)}, "llama.attention.clamp_kqv = 5.0 is not implemented"),
        ({"llama__something_new": number(4, 1)}, "llama.something_new = 1 is not implemented"),
        ({"llama__block_count": string("1")}, "llama.block_count is 1"),
        ({"llama__block_count": number(7, 1)}, "llama.block_count is True"),
        (
            {"llama__attention__head_count_kv": array(4, 2, bytes([1, 0, 0, 0, 2, 0, 0, 0]))},
            "differs from layer to layer",
        ),
        ({"llama__attention__head_count_kv": array(4, 0, b"")}, "differs from layer to layer"),
        ({"llama__attention__value_length": number(4, 8)}, "value_length is 8, and heads have 4"),
        ({"llama__rope__dimension_count": number(4, 2)}, "dimension_count is 2, and heads have 4"),
        ({"llama__attention__sliding_window": number(4, 16)}, "sliding_window is 16"),
        ({"llama__rope__scaling__type": string("longrope")}, "scaling.type is longrope"),
        ({"tokenizer__ggml__tokens": None}, "holds no tokenizer"),
        ({"tokenizer__ggml__tokens": number(4, 5)}, "sound GGUF"),
        ({"tokenizer__ggml__model": string("plamo2")}, "kind 'plamo2'"),
        ({"tokenizer__ggml__pre": string("made-up")}, "split of texts 'made-up'"),
        ({"tokenizer__ggml__pre": None}, "does not name its split"),
        ({"tokenizer__ggml__merges": strings(["ab"])}, "sound GGUF"),
        ({"tokenizer__ggml__merges": None}, "sound GGUF"),
        ({"tokenizer__ggml__token_type": array(5, 2, bytes(8))}, "sound GGUF"),
        ({"tokenizer__ggml__token_type": array(6, 3, bytes(12))}, "sound GGUF"),
        ({"tokenizer__ggml__tokens": strings([b"\xff", "b", "ab"])}, "sound GGUF"),
        ({"tokenizer__ggml__add_bos_token": number(4, 1)}, "sound GGUF"),
        ({"tokenizer__ggml__model": string("llama")}, "sound GGUF"),
        ({"tokenizer__ggml__model": string("llama"), "tokenizer__ggml__scores": array(6, 2, bytes(8))}, "sound GGUF"),
    ],
)
def test_what_is_not_implemented_is_refused_by_name(tmp_path, changes, words):
    with pytest.raises(ModelError) as caught:
        unfolded(tmp_path, **changes)
    assert words in caught.value.what and caught.value.fix


def test_a_tensor_that_the_model_does_not_have_is_named(tmp_path):
    write_checkpoint("llama-tied", tmp_path / "hf")
    path = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", "llama")
    data = path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_us.weight")
    with pytest.raises((CorruptModel, UnsupportedModel), match="lacks the tensor model.layers.1.mlp.up_proj"):
        load_folder(unfold(write(tmp_path / "z.gguf", data), None), F32)


def test_unfolded_folders_are_kept_and_made_anew(tmp_path):
    write_checkpoint("llama-tied", tmp_path / "hf")
    path = write_gguf(tmp_path / "hf", tmp_path / "x.gguf", "llama")
    first = unfold(path, tmp_path / "cache")
    assert unfold(path, tmp_path / "cache") == first and first.parent == tmp_path / "cache" / "gguf"
    path.touch()
    assert unfold(path, tmp_path / "cache") != first
    assert not list(first.parent.glob(".new-*"))
    (tmp_path / "file").write_text("")
    assert (unfold(path, tmp_path / "file") / "tokenizer.json").is_file()
