"""Encoders and rerankers as GGUF files: vectors, scores and token ids, compared with the folders from which they were
made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import tokenizers
from gguf import GGMLQuantizationType as Type

from tests.quantize.test_gguf import F32, silent
from tests.retrieval.folders import (
    EXACT,
    bert_tokenizer,
    with_sentence_files,
    write_embedding,
    write_encoder,
    write_reranker,
)
from tests.weights.gguf.converted import add_key, read_config, recorded, tensors_of
from tests.weights.gguf.export import all_of, read_tensors
from tests.weights.gguf.files import array, info, number, raw, string, strings, write
from tests.weights.gguf.test_models import KEYS
from tests.weights.gguf.test_tokenizers import NASTY, rebuilt
from twostroke.llm import LLM
from twostroke.quantize.gguf.vocabulary import vocabulary_keys
from twostroke.quantize.gguf.write import MIXES, write_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ModelError
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.gguf.vocabulary.encoder_tokenizers import is_sound_charsmap

TEXTS = ["what is a page of the cache", "decode reads one token at a time", "page", "the weights . " * 7]
SETTINGS: dict[str, Any] = {name: value for name, value in EXACT.items() if name not in ("context", "weights")}
TYPES = {bool: 7, int: 4, float: 6, str: 8}


def vectors(model: Path) -> tuple[np.ndarray, str, str]:
    with LLM(str(model), weights="f32", **SETTINGS) as llm:
        return llm.embed(TEXTS), str(llm.resolved["task"]), str(llm.resolved["pooling"])


def require_same_ids(one: Path, two: Path, pairs: bool = True) -> None:
    first, second = (Tokenizer.from_folder(each) for each in (one, two))
    for text in NASTY:
        assert first.encode_rendered(text) == second.encode_rendered(text), text
    assert first.frame(False) == second.frame(False)
    assert not pairs or first.frame(True) == second.frame(True)


@pytest.mark.parametrize(
    ("family", "pooling", "mix"),
    [
        ("bert", "cls_token", F32),
        pytest.param("nomic-bert", "mean_tokens", F32, marks=pytest.mark.slow),
        pytest.param("modernbert", "mean_tokens", F32, marks=pytest.mark.slow),
        pytest.param("bert", "mean_tokens", MIXES["Q8_0"], marks=pytest.mark.slow),
        ("qwen3", "lasttoken", F32),
    ],
)
def test_a_written_encoder_makes_the_vectors_of_its_folder(family, pooling, mix, tmp_path):
    if family == "qwen3":
        write_embedding(tmp_path / "hf")
    else:
        write_encoder(tmp_path / "hf", family)
        with_sentence_files(tmp_path / "hf", {f"pooling_mode_{pooling}": True})
    path = write_folder(tmp_path / "hf", tmp_path / "out", mix, "small", silent)
    folder = unfold(path, None)
    require_same_ids(tmp_path / "hf", folder, pairs=family != "qwen3")
    (expected, task, said), (found, *same) = vectors(tmp_path / "hf"), vectors(path)
    assert [task, said] == same == ["embed", {"cls_token": "cls", "mean_tokens": "mean", "lasttoken": "last"}[pooling]]
    assert np.array_equal(found, expected) == (mix is F32)
    assert (found * expected).sum(axis=1).min() > (1 - 1e-6 if mix is F32 else 0.999)


def add_vocabulary(writer: gguf.GGUFWriter, folder: Path, config: dict[str, Any], size: int) -> None:
    for key, value in vocabulary_keys(folder, config, size).items():
        add_key(writer, key, TYPES[type(value[0] if isinstance(value, list) else value)], value)


def converted(
    folder: Path, path: Path, arch: str, keys: dict[str, tuple[int, Any]], kind: Type = Type.F32, head: Any = ()
) -> Path:
    """The folder's file as llama.cpp's converter writes it, with the folder's tokenizer. keys: keys of the
    architecture. kind: the type of matrices. head: rows of the embedding that are stored as the head of a reranker."""
    config = read_config(folder)
    writer = gguf.GGUFWriter(path, arch)
    for key, (number_of_type, value) in keys.items():
        add_key(writer, f"{arch}.{key}", number_of_type, value)
    add_vocabulary(writer, folder, config, config["vocab_size"])
    for name, values in tensors_of(arch, config, read_tensors(folder)):
        of = all_of(kind)(name, values.shape)
        writer.add_tensor(name, gguf.quants.quantize(values, of), raw_dtype=of)
        if name == "token_embd.weight" and len(head):
            writer.add_tensor("cls.output.weight", np.ascontiguousarray(values[list(head)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("family", ["xlm-roberta", "xlm-roberta-classifier"])
def test_roberta_s_file_is_one_of_bert(family, tmp_path):
    """It lacks the rows of positions for padding. Its classifier makes the file a reranker's."""
    write_encoder(tmp_path / "hf", family)
    keys = recorded()[family]["keys"]
    if family == "xlm-roberta":
        with_sentence_files(tmp_path / "hf", {"pooling_mode_cls_token": True})
    path = converted(tmp_path / "hf", tmp_path / "x.gguf", "bert", keys)
    require_same_ids(tmp_path / "hf", unfold(path, None))
    if family == "xlm-roberta":
        expected = vectors(tmp_path / "hf")[0]
        assert np.array_equal(vectors(path)[0], expected)
        half = converted(tmp_path / "hf", tmp_path / "y.gguf", "bert", keys, Type.F16)
        assert (vectors(half)[0] * expected).sum(axis=1).min() > 1 - 1e-6
        return
    scores = []
    for each in (path, tmp_path / "hf"):
        with LLM(str(each), weights="f32", **SETTINGS) as llm:
            assert llm.resolved["task"] == "rerank"
            scores.append(llm.score("what is a page", TEXTS))
    assert scores[0] == scores[1] and len(set(scores[0])) == len(TEXTS)


def test_a_file_of_qwen3_reranker_is_asked_yes_or_no(tmp_path):
    """The head has two rows, for yes and for no."""
    write_reranker(tmp_path / "hf")
    folder = tmp_path / "hf"
    yes, no = (Tokenizer.from_folder(folder).id_of(word) for word in ("yes", "no"))
    said = recorded()["qwen3-tied"]["keys"]
    keys = {**said, "pooling_type": [4, 4], "classifier.output_labels": [8, ["yes", "no"]]}
    config = read_config(folder)
    keys |= {name: [4, config[field]] for name, field in {"context_length": "max_position_embeddings"}.items()}
    keys["rope.freq_base"] = [6, config["rope_parameters"]["rope_theta"]]
    path = converted(folder, tmp_path / "x.gguf", "qwen3", keys, head=(yes, no))
    scores = []
    for each, task in ((path, "auto"), (folder, "rerank")):
        with LLM(str(each), weights="f32", task=task, **SETTINGS) as llm:
            assert llm.resolved["task"] == "rerank"
            scores.append(llm.score("what is a page", TEXTS[:2]))
    assert scores[0] == pytest.approx(scores[1], abs=1e-6)


def test_cased_wordpiece_keeps_accents_and_cases(tmp_path):
    original = bert_tokenizer()
    original.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    original.add_tokens([tokenizers.AddedToken("Äpfel", special=False)])
    original.save(str(tmp_path / "tokenizer.json"))
    size = original.get_vocab_size()
    stored = vocabulary_keys(tmp_path, {}, size + 3)["tokenizer.ggml.tokens"]
    assert stored[2] == "[CLS]" and "▁a" in stored
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "bert")
    add_vocabulary(writer, tmp_path, {}, size + 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    found, _ = rebuilt(tmp_path / "x.gguf")
    for text in (*NASTY, "Äpfel äpfel ÄPFEL"):
        assert found.encode(text).ids == original.encode(text).ids, text


def charsmap(changes: dict[int, int] | None = None, texts: bytes = b"a\0", units: int = 256) -> bytes:
    """A trie of one key: A becomes a."""
    found = [0] * units
    found[0], found[1 ^ 65], found[64 ^ 2] = 1 << 10, 65 | (2 << 10) | (1 << 8), 1 << 31
    for place, value in (changes or {}).items():
        found[place] = value
    return (4 * units).to_bytes(4, "little") + b"".join(unit.to_bytes(4, "little") for unit in found) + texts


def test_a_table_of_characters_is_kept_and_checked(tmp_path):
    keys = {
        "model": string("t5"), "tokens": strings(["<unk>", "</s>", "▁", "a"]), "unknown_token_id": number(4, 0),
        "scores": array(6, 4, np.array([0, 0, -1, -2], np.float32).tobytes()), "eos_token_id": number(4, 1),
    }  # fmt: skip

    def ids(data: bytes) -> list[int]:
        said = {**keys, "precompiled_charsmap": array(0, len(data), data)}
        path = write(tmp_path / "x.gguf", raw([(f"tokenizer.ggml.{name}", value) for name, value in said.items()]))
        return rebuilt(path)[0].encode("A aA").ids

    assert ids(charsmap()) == [2, 3, 2, 3, 3, 1]
    assert is_sound_charsmap(charsmap())
    broken = (
        b"", b"\xff\xff\xff\xff", charsmap(texts=b"\xff"), charsmap(units=255), charsmap({66: (1 << 31) | 2}),
        charsmap({0: 500 << 10}), charsmap({66: (1 << 31) | 1}, "é\0".encode()), charsmap()[:900],
    )  # fmt: skip
    for data in broken:
        assert not is_sound_charsmap(data)
        if data:
            with pytest.raises(ModelError, match="sound GGUF") as caught:
                ids(data)
            assert "no table of characters" in caught.value.why


BERT: dict[str, Any] = {
    "general.architecture": string("bert"), "bert.block_count": number(4, 0), "bert.context_length": number(4, 16),
    "bert.embedding_length": number(4, 8), "bert.feed_forward_length": number(4, 16),
    "bert.attention.head_count": number(4, 2), "bert.attention.layer_norm_epsilon": number(6, 1e-12),
    "bert.attention.causal": number(7, 0), "bert.pooling_type": number(4, 2), "tokenizer.ggml.model": string("bert"),
    "tokenizer.ggml.tokens": strings(["[UNK]", "[CLS]", "[SEP]", "▁a", "b"]),
    "tokenizer.ggml.unknown_token_id": number(4, 0), "tokenizer.ggml.bos_token_id": number(4, 1),
    "tokenizer.ggml.seperator_token_id": number(4, 2),
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, ""),
        ({"bert.pooling_type": None}, "does not say how the rows"),
        ({"bert.pooling_type": number(4, 0)}, "does not say how the rows"),
        ({"bert.pooling_type": number(4, 9)}, "pooling_type is 9"),
        ({"bert.pooling_type": string("cls")}, "pooling_type is cls"),
        ({"bert.pooling_type": number(4, 4)}, "has no cls.output.weight"),
        ({"bert.attention.causal": number(7, 1)}, "attention.causal is True"),
        ({"tokenizer.ggml.tokens": strings(["[UNK]", "[CLS]", "[SEP]", "▁a"])}, "has 5 rows, and the vocabulary has 4"),
        ({"tokenizer.ggml.bos_token_id": None}, "does not say which token its bos is"),
        ({"tokenizer.ggml.seperator_token_id": number(4, 99)}, "does not say which token its seperator is"),
        ({"tokenizer.ggml.normalizer.lowercase": number(4, 1)}, "sound GGUF"),
        ({"tokenizer.ggml.model": string("t5")}, "sound GGUF"),
    ],
)
def test_what_is_missing_in_a_file_of_an_encoder_is_said(changes, words, tmp_path):
    keys = [(name, value) for name, value in {**BERT, **changes}.items() if value is not None]
    path = write(tmp_path / "x.gguf", raw(keys, [info("token_embd.weight", [8, 5], 0, 0)], bytes(160)))
    if not words:
        folder = unfold(path, None)
        assert json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]["##b"] == 4
        return
    with pytest.raises(ModelError) as caught:
        unfold(path, None)
    assert words in caught.value.what and caught.value.fix


def test_a_generating_model_that_is_said_to_score_has_a_head_for_it(tmp_path):
    keys = {**KEYS, "llama.pooling_type": number(4, 4)}
    path = write(tmp_path / "x.gguf", raw(list(keys.items()), [info("token_embd.weight", [8, 3], 0, 0)], bytes(96)))
    with pytest.raises(ModelError, match="said to score pairs of texts"):
        unfold(path, None)
