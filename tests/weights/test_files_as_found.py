"""Folders as people have them: shards without an index, other names, byte order marks, files next to the model."""

from __future__ import annotations

import codecs
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.models.families.stored import write_checkpoint
from tests.weights.checkpoints import CONFIG, random_tensors, write
from twostroke.runner.folder import read_folder
from twostroke.types.errors import CorruptModel, ModelError, ModelNotFound, UnsupportedModel
from twostroke.weights.checkpoint import INDEX_NAME, SINGLE_NAME, Checkpoint
from twostroke.weights.gguf.file_names import beside, first_part, parts_of, whole_models
from twostroke.weights.hub.hub import resolve_model
from twostroke.weights.tensors import check_tensors
from twostroke.weights.unread import beside_sentence, unread_sentence

TENSORS = random_tensors(CONFIG)


def without_index(folder: Path, shards: int) -> Path:
    write(folder, CONFIG, TENSORS, shards)
    (folder / INDEX_NAME).unlink()
    return folder


def numbers(folder: Path) -> dict[str, bytes]:
    with Checkpoint.open(folder) as checkpoint:
        return {name: checkpoint.read(name).tobytes() for name in checkpoint.names}


def test_shards_without_an_index_are_all_read(tmp_path: Path) -> None:
    usual = numbers(write(tmp_path / "one", CONFIG, TENSORS))
    assert numbers(without_index(tmp_path / "three", 3)) == usual
    other = without_index(tmp_path / "named", 2)
    save_file({"x": np.zeros(1, np.float32)}, other / "consolidated-00001-of-00001.safetensors")
    for path in other.glob("model-*"):
        path.rename(path.with_name(path.name.replace("model", "tiny.bf16")))
    assert numbers(other) == usual
    (tmp_path / "one" / SINGLE_NAME).rename(tmp_path / "one" / "weights.safetensors")
    assert numbers(tmp_path / "one") == usual


def test_what_is_missing_or_unclear_is_named(tmp_path: Path) -> None:
    folder = without_index(tmp_path / "lost", 3)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CorruptModel, match=r"model-00002-of-00003.*is missing") as caught:
        Checkpoint.open(folder)
    assert INDEX_NAME in caught.value.why
    folder = without_index(tmp_path / "two", 2)
    save_file({"x": np.zeros(1, np.float32)}, folder / "other-00001-of-00002.safetensors")
    with pytest.raises(ModelNotFound, match="2 checkpoints") as found:
        Checkpoint.open(folder)
    assert "model-00001" in found.value.why and "other-00001" in found.value.why
    folder = without_index(tmp_path / "twice", 2)
    first, second = (folder / f"model-0000{n}-of-00002.safetensors" for n in (1, 2))
    name = next(iter(load_file(first)))
    save_file({**load_file(second), name: TENSORS[name]}, second)
    with pytest.raises(CorruptModel, match="both hold the tensor"):
        Checkpoint.open(folder)
    for names, words in [((), "holds no weights"), (("a", "b"), "says what is in them")]:
        folder = tmp_path / words.replace(" ", "-")
        folder.mkdir()
        for each in names:
            save_file({"x": np.zeros(1, np.float32)}, folder / f"{each}.safetensors")
        with pytest.raises(ModelNotFound, match=words):
            Checkpoint.open(folder)


def test_a_byte_order_mark_changes_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path, CONFIG, TENSORS, shards=2)
    for name in ("config.json", INDEX_NAME):
        (folder / name).write_bytes(codecs.BOM_UTF8 + (folder / name).read_bytes())
    assert read_folder(folder).vocab_size == CONFIG["vocab_size"] and len(numbers(folder)) == len(TENSORS)


def test_an_index_of_a_very_large_model_is_read(tmp_path: Path) -> None:
    """Mixtures with hundreds of experts in a layer have an index of more than 16 MiB."""
    folder = write(tmp_path / "large", CONFIG, TENSORS, 2)
    path = folder / INDEX_NAME
    path.write_bytes(path.read_bytes() + b" " * (17 << 20))
    assert numbers(folder) == numbers(write(tmp_path / "one", CONFIG, TENSORS))


def test_tensors_that_are_not_read_are_named(tmp_path: Path) -> None:
    write_checkpoint("zamba2", tmp_path)
    tensors = load_file(tmp_path / SINGLE_NAME)
    first, third = "model.layers.1.shared_transformer.", "model.layers.3.shared_transformer."
    tied = read_folder(tmp_path)
    with Checkpoint.open(tmp_path) as checkpoint:
        assert unread_sentence(tied, checkpoint) is None

    again = {third + name.removeprefix(first): tensor for name, tensor in tensors.items() if name.startswith(first)}
    again = {name: tensor.copy() for name, tensor in again.items()}
    save_file({**tensors, **again}, tmp_path / SINGLE_NAME)
    with Checkpoint.open(tmp_path) as checkpoint:
        check_tensors(checkpoint, tied)
        assert unread_sentence(tied, checkpoint) is None

    name = f"{third}self_attn.o_proj.weight"
    save_file({**tensors, **again, name: again[name] + 1}, tmp_path / SINGLE_NAME)
    with Checkpoint.open(tmp_path) as checkpoint, pytest.raises(UnsupportedModel, match=name) as caught:
        check_tensors(checkpoint, tied)
    assert "tie_word_embeddings" in caught.value.fix


def test_parts_that_a_program_leaves_out_are_one_word(tmp_path: Path) -> None:
    write_checkpoint("nemotron-h", tmp_path)
    path = tmp_path / SINGLE_NAME
    left = {f"mtp.layers.0.{name}.weight": np.zeros(2, np.float32) for name in ("a", "b")}
    noise = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(2, np.float32)}
    save_file({**load_file(path), **left, **noise}, path)
    model = read_folder(tmp_path)
    with Checkpoint.open(tmp_path) as checkpoint:
        check_tensors(checkpoint, model)
        sentence = unread_sentence(model, checkpoint)
        assert unread_sentence(model, checkpoint, guesses=True) is None
    assert sentence is not None and "mtp.* (2)" in sentence and "inv_freq" not in sentence


def test_names_of_gguf_files() -> None:
    names = ["Tiny-Q4_0.GGUF", "mmproj-tiny-f16.gguf", "Tiny.mmproj-Q8_0.gguf", "tiny.imatrix.gguf", "b-imat-Q4_0.gguf"]
    assert whole_models(names) == ["Tiny-Q4_0.GGUF", "b-imat-Q4_0.gguf"]
    assert [bool(beside(name)) for name in names] == [False, True, True, True, False]
    assert first_part("a/x-00003-of-00004.GGUF") == "a/x-00001-of-00004.GGUF" and first_part("x.gguf") == "x.gguf"
    parts = ["x-00002-of-00002.GGUF", "x-00001-of-00002.GGUF", "y-00001-of-00002.gguf"]
    assert parts_of(parts[1], parts) == sorted(parts[:2])


def test_a_folder_with_a_projector_and_a_later_part(tmp_path: Path) -> None:
    for name in ("tiny-00001-of-00002.GGUF", "tiny-00002-of-00002.GGUF", "mmproj-f16.gguf", "tiny.imatrix.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    first = tmp_path / "tiny-00001-of-00002.GGUF"
    for asked in (tmp_path, first, tmp_path / "tiny-00002-of-00002.GGUF"):
        assert resolve_model(str(asked)).path == first
    (tmp_path / "second-Q8_0.gguf").write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="2 models"):
        resolve_model(str(tmp_path))


def test_only_gguf_files_have_something_beside_them(tmp_path: Path) -> None:
    write(tmp_path, CONFIG, TENSORS)
    (tmp_path / "mmproj-f16.gguf").write_bytes(b"GGUF")
    with Checkpoint.open(tmp_path) as checkpoint:
        assert beside_sentence(checkpoint) is None
