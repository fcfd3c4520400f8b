"""GGUF files that we write: blocks are compared with the `gguf` package's dequantizer, and files with its reader and
ours."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.models.families.stored import write_checkpoint
from tests.models.parity import Loaded, relative_error
from tests.quantize.folders import small_folder
from tests.retrieval.folders import with_sentence_files
from tests.weights.gguf import k_quants
from tests.weights.gguf.converted import recorded
from tests.weights.gguf.export import llama3_divisors
from tests.weights.gguf.test_families import by_heads
from twostroke import LLM, SamplingParams
from twostroke.ops.reference import ReferenceOps
from twostroke.quantize.gguf.blocks import TYPES
from twostroke.quantize.gguf.keys import rotation_divisors
from twostroke.quantize.gguf.write import MIXES, GgufMix, write_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError, UnsupportedModel
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import unfold

RNG = np.random.default_rng(0)
VALUES = (RNG.standard_t(4, (24, 512)) * np.exp(RNG.standard_normal((24, 1)))).astype(np.float32)
ZEROS = np.zeros((2, 256), np.float32)


def silent(done: int, total: int, what: str) -> None:
    """A progress that prints nothing."""


def squared_error(values: np.ndarray, octets: np.ndarray, name: str) -> float:
    found = gguf.quants.dequantize(octets, gguf.GGMLQuantizationType[name])
    return float(np.sum((found - values) ** 2, dtype=np.float64))


@pytest.mark.parametrize("name", ["Q4_0", "Q5_0", "Q8_0", "Q4_K", "Q6_K"])
def test_blocks_err_no_more_than_plain_quantizers(name):
    plain = {"Q4_K": k_quants.q4_k, "Q6_K": k_quants.q6_k}.get(
        name, lambda values: gguf.quants.quantize(values, gguf.GGMLQuantizationType[name])
    )
    ours, theirs = (squared_error(VALUES, each(VALUES), name) for each in (TYPES[name].rows, plain))
    assert ours <= (1.0001 if name == "Q8_0" else 0.95) * theirs
    relative = {"Q4_0": 0.13, "Q5_0": 0.065, "Q8_0": 0.008, "Q4_K": 0.1, "Q6_K": 0.025}[name]
    assert np.sqrt(ours / np.sum(VALUES**2, dtype=np.float64)) < relative
    assert squared_error(ZEROS, TYPES[name].rows(ZEROS), name) == 0


@pytest.mark.parametrize("name", list(TYPES))
def test_sizes_are_ggml_s(name):
    kind = gguf.GGMLQuantizationType[name]
    assert (TYPES[name].elements, TYPES[name].num_bytes) == gguf.GGML_QUANT_SIZES[kind]
    assert TYPES[name].number == kind.value


@pytest.fixture(scope="module", params=["LlamaForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM"])
def source(request, tmp_path_factory) -> Path:
    wide = {"hidden_size": 256, "intermediate_size": 320, "head_dim": 64}
    return small_folder(tmp_path_factory.mktemp("source") / "small", architectures=[request.param], **wide)


@pytest.mark.parametrize("mix", list(MIXES))
def test_a_file_holds_the_model(source, tmp_path, mix):
    path = write_folder(source, tmp_path / "out", MIXES[mix], "small", silent)
    reader = gguf.GGUFReader(path)
    kinds = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    narrow = {"Q4_0": "Q4_0", "Q8_0": "Q8_0", "Q6_K": "Q8_0", "Q4_K_M": "Q5_0"}[mix]  # 320 columns are no blocks of 256
    assert kinds["blk.0.ffn_down.weight"] == narrow
    assert kinds["token_embd.weight"] == MIXES[mix].finer and kinds["blk.0.attn_norm.weight"] == "F32"
    assert kinds["blk.1.attn_q.weight"] == MIXES[mix].usual
    assert Tokenizer.from_folder(unfold(path, None)).encode_rendered("What's 12?\n ü") == Tokenizer.from_folder(
        source
    ).encode_rendered("What's 12?\n ü")
    with Checkpoint.open(source) as plain, Checkpoint.open(unfold(path, None)) as made:
        assert plain.names == made.names
        for name in plain.names:
            exact = (plain.read(name).astype(np.uint32) << 16).view(np.float32)
            error = np.sqrt(np.mean((made.read(name) - exact) ** 2) / np.mean(exact**2))
            assert error < 0.12, name


BYTES = {
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
    "model": {"type": "BPE", "vocab": {"w": 0, "o": 1, "wo": 2}, "merges": ["w o"]},
}


F32 = GgufMix("F32", 0, "F32", "F32")
SOME = (
    "bloom", "cohere2", "deepseek-v2-equal-scales", "deepseek-v3.2", "exaone-moe", "falcon-groups", "gemma3-sixth",
    "glm-4.5", "gpt-neox", "gpt-oss-usual-limit", "gpt2", "granite-4-hybrid-moe", "granite-moe-shared", "hunyuan-moe",
    "jamba", "lfm2-moe-unscaled", "llama3-grouped", "llama4-usual", "mamba2", "minicpm3-usual", "ministral3",
    "mixtral-experts", "nemotron-biases-quarter", "olmo3", "phimoe-usual", "qwen2-moe-sparse", "qwen3-moe",
    "qwen3-next-sparse", "qwen3.5-moe", "stablelm",
)  # fmt: skip
"""One family for each way in which tensors are moved, and for most functions of own_keys.py."""
IMAGES = ("glm-4.1v", "glm-4.5v", "qwen2-vl", "qwen3-vl", "qwen3-vl-moe", "qwen3.5-with-images")
REFUSED = {
    **dict.fromkeys((*IMAGES, "qwen3.5-moe-with-images"), "ConditionalGeneration"),
    **dict.fromkeys(("paddle-ocr-vl", "hunyuan-ocr"), "GGUF"),
    **dict.fromkeys(("xlm-roberta", "xlm-roberta-classifier"), "XLMRoberta"),
    **dict.fromkeys(("falcon-h1", "falcon-h1-factors"), "falcon-h1"),
    **dict.fromkeys(("nemotron-h", "nemotron-h-moe", "nemotron-h-moe-latent", "nomic-bert-moe"), "no place"),
    "glm-4.7-flash": "Glm4MoeLite",
    **dict.fromkeys(("rwkv6-rescaled", "rwkv7"), "A (Rwkv6|RWKV7)ForCausalLM cannot be written as GGUF"),
    **dict.fromkeys(("deepseek-v4-first-by-token", "deepseek-v4-yarn-rates"), "A DeepseekV4ForCausalLM cannot"),
    "dbrx": "A DbrxForCausalLM cannot be written as GGUF",
    **dict.fromkeys(("bailing-moe-v2", "bitnet-tied", "deepseek", "exaone", "internlm2"), "cannot be written as GGUF"),
    **dict.fromkeys(("minicpm", "nemotron-nas-without-products", "baichuan"), "cannot be written as GGUF"),
    **dict.fromkeys(("bailing-moe-sparse", "jina-bert", "neobert", "orion"), "cannot be written as GGUF"),
    **dict.fromkeys(("xverse", "step-3.7", "step-3.7-scaled"), "cannot be written as GGUF"),
}
OTHERWISE = {
    "block_count", "context_length", "nextn_predict_layers", "feed_forward_length", "rope.scaling.type",
    "tensor_data_layout", "attention.sliding_window", "ssm.dt_b_c_rms", "expert_shared_count",
    "attention.layer_norm_rms_epsilon", "attention.head_count_kv", "expert_feed_forward_length",
    "leading_dense_block_count", "expert_shared_feed_forward_length", "classifier.pooling_type",
}  # fmt: skip
"""Keys that the converter also writes where they mean nothing (0, "none"), or with other values. For example,
it writes a width of 4 times the model's for any matrix, and a number of draft layers where the folder has none."""


@pytest.mark.parametrize(
    "family", [pytest.param(each, marks=() if each in SOME else pytest.mark.slow) for each in sorted(recorded())]
)
def test_the_file_of_a_family_computes_what_its_folder_does(family, tmp_path):
    hf = tmp_path / "hf"
    write_checkpoint(family, hf)
    by_heads(hf)
    (hf / "tokenizer.json").write_text(json.dumps(BYTES))
    if "pooling_type" in recorded()[family]["keys"]:
        with_sentence_files(hf, {"pooling_mode": "cls"})
    if family in REFUSED:
        with pytest.raises(UnsupportedModel, match=REFUSED[family]):
            write_folder(hf, tmp_path / "out", F32, "small", silent)
        return
    path = write_folder(hf, tmp_path / "out", F32, "small", silent)
    said, reader = recorded()[family], gguf.GGUFReader(path)
    guesses = said["keys"].get("nextn_predict_layers", [0, 0])[1]
    for key, (_, value) in said["keys"].items():
        value = value[:-guesses] if isinstance(value, list) and guesses else value
        field = reader.fields.get(f"{said['arch']}.{key}")
        if key not in OTHERWISE:
            assert field is not None, key
            numbers = isinstance(value, float) or (isinstance(value, list) and isinstance(value[0], float))
            assert field.contents() == (pytest.approx(value) if numbers else value), key
    ids = np.random.default_rng(5).integers(0, 100, 40).tolist()
    ours, theirs = (Loaded(each, ReferenceOps()).run(ids, [40]) for each in (unfold(path, None), hf))
    if family in (
        "llama3-grouped",
        "phi3-longrope-long",
        "phi3-longrope-short",
        "gemma3n",
        "apertus",
    ):  # factors are float32 in the file
        assert relative_error(ours, theirs) < 2e-6  # factors are float32 in the file
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("family", ["granite-moe", "qwen3-moe", "gpt-oss-usual-limit", "llama4-usual"])
def test_experts_are_written_as_stacks_of_blocks(family, tmp_path):
    write_checkpoint(family, tmp_path / "hf")
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(BYTES))
    path = write_folder(tmp_path / "hf", tmp_path / "out", MIXES["Q8_0"], "small", silent)
    stacks = [tensor for tensor in gguf.GGUFReader(path).tensors if "_exps.weight" in tensor.name]
    assert len(stacks) >= 3 and {len(tensor.shape) for tensor in stacks} == {3}
    assert {tensor.tensor_type.name for tensor in stacks if tensor.shape[0] % 32 == 0} == {"Q8_0"}
    with Checkpoint.open(tmp_path / "hf") as plain, Checkpoint.open(unfold(path, None)) as made:
        assert plain.names == made.names
        for name in plain.names:
            exact = plain.read(name)
            assert np.abs(made.read(name) - exact).max() <= np.abs(exact).max() / 120, name


def test_what_keys_cannot_say_is_refused(tmp_path):
    """llama.cpp never divides the weights of Qwen2-MoE's experts, and no key can change this."""
    write_checkpoint("qwen3-moe", tmp_path / "hf")
    config = json.loads((tmp_path / "hf" / "config.json").read_text())
    (tmp_path / "hf" / "config.json").write_text(json.dumps({**config, "norm_topk_prob": False}))
    (tmp_path / "hf" / "tokenizer.json").write_text(json.dumps(BYTES))
    with pytest.raises(UnsupportedModel, match="read as another model") as caught:
        write_folder(tmp_path / "hf", tmp_path / "out", MIXES["Q8_0"], "small", silent)
    assert "Route" in caught.value.why or "Experts" in caught.value.why
    assert not (tmp_path / "out").exists()


def test_a_folder_with_the_file_is_served(source, tmp_path):
    write_folder(source, tmp_path / "out", MIXES["Q4_K_M"], "small", silent)
    with LLM(str(tmp_path / "out"), cache="off") as llm:
        answer = llm.generate(["what is prefill"], SamplingParams(max_tokens=3, temperature=0.0))
    assert len(answer[0].completions[0].token_ids) == 3


def test_an_output_that_is_named_as_a_file_is_the_file(source, tmp_path):
    path = write_folder(source, tmp_path / "new" / "mine.gguf", MIXES["Q8_0"], "small", silent)
    assert path == tmp_path / "new" / "mine.gguf" and path.is_file() and list(path.parent.iterdir()) == [path]
    with pytest.raises(ConfigError, match="exists already"):
        write_folder(source, path, MIXES["Q8_0"], "small", silent)


def test_divisors_of_llama_3():
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    config = {"num_attention_heads": 4, "hidden_size": 512, "rope_scaling": rope}
    np.testing.assert_allclose(rotation_divisors(config)["rope_freqs.weight"], llama3_divisors(rope, 128), rtol=1e-5)
    with pytest.raises(UnsupportedModel, match="dynamic"):
        rotation_divisors({**config, "rope_scaling": {"rope_type": "dynamic", "factor": 4.0}})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"architectures": ["OPTForCausalLM"]}, "OPTForCausalLM"),
        ({"architectures": ["MistralForCausalLM"], "sliding_window": 64}, "sliding"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(changes, words, tmp_path):
    folder = small_folder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(UnsupportedModel, match=words):
        write_folder(folder, tmp_path / "out", MIXES["Q8_0"], "model", silent)
    assert not (tmp_path / "out").exists()


def test_an_unknown_tokenizer_is_refused(tmp_path):
    folder = small_folder(tmp_path / "model")
    said = json.loads((folder / "tokenizer.json").read_text())
    said["pre_tokenizer"] = {"type": "Whitespace"}
    (folder / "tokenizer.json").write_text(json.dumps(said))
    with pytest.raises(UnsupportedModel, match="tokenizer") as caught:
        write_folder(folder, tmp_path / "out", MIXES["Q8_0"], "model", silent)
    assert "Whitespace" in caught.value.why


def test_a_disk_without_room_is_refused_before_the_folder_is_made(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10, 10, 1000))
    with pytest.raises(ConfigError, match="GB free"):
        write_folder(small_folder(tmp_path / "model"), tmp_path / "a" / "out", MIXES["Q8_0"], "model", silent)
    assert not (tmp_path / "a").exists()


def test_a_full_disk_leaves_no_file(tmp_path, monkeypatch):
    folder = small_folder(tmp_path / "model")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written"):
        write_folder(folder, tmp_path / "out", MIXES["Q8_0"], "model", silent)
    assert not list((tmp_path / "out").iterdir())


def test_a_folder_that_holds_something_is_not_written_to(tmp_path):
    (tmp_path / "mine").write_text("kept")
    with pytest.raises(ConfigError, match="exists already"):
        write_folder(small_folder(tmp_path / "model"), tmp_path, MIXES["Q8_0"], "model", silent)
