"""Files of every kind of family with wrong keys and tensors give one of our errors, and take no memory because of a
wrong number.

GGUF loaders had flaws of this kind (CVE-2024-21802, -21825, -21836, -23496, -23605, -32878, CVE-2025-49847, -53630).
Counts, lengths, sizes and sums of tensors wrapped; offsets were outside; types were out of range. Strings were longer
than the file, and keys had another type than expected. Flaws of the container are tested in test_container.py; here are
those in the meaning of keys and tensors.
"""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.families.stored import write_checkpoint
from tests.weights.gguf import converted
from tests.weights.gguf.converted import recorded, write_converted
from tests.weights.gguf.files import array, info, number, raw, string, strings, write
from tests.weights.gguf.test_encoders import BERT, charsmap
from tests.weights.gguf.test_tokenizers import NASTY
from twostroke.models.common.registry import read_model
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ModelError
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.stored import stored_formats
from twostroke.weights.tensors import check_tensors

pytestmark = pytest.mark.slow

OF_EACH_KIND = (
    "llama-yarn",
    "gpt2",
    "gpt-neox",
    "falcon-groups",
    "gpt-oss-usual-limit",
    "granite-moe",
    "deepseek-v3",
    "exaone-moe",
    "mamba2",
    "jamba",
    "nemotron-h-moe",
    "falcon-h1",
    "lfm2",
    "qwen3-next-sparse",
    "qwen3.5",
    "bert",
    "xlm-roberta-classifier",
    "gemma4",
    "glm-4.1v",
    "apertus",
    "kimi-linear",
    "rwkv6-rescaled",
    "deepseek-v4-first-by-token",
)
NUMBERS = (0, 1, 3, -1, (1 << 31) - 1)
TRIES = 6
MOST_BYTES = 64 << 20


def whole_way(path: Path) -> None:
    """All work that is done before weights are read."""
    folder = unfold(path, None)
    with Checkpoint.open(folder) as checkpoint:
        model = read_model(json.loads((folder / "config.json").read_text()), stored_formats(checkpoint))
        check_tensors(checkpoint, model)


def broken(rng: np.random.Generator, keys: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """A file in which one to three keys are missing, have another number, or have another type."""
    found = dict(keys)
    for key in rng.choice(sorted(keys), rng.integers(1, 4), replace=False).tolist():
        number, value = found[key]
        way = int(rng.integers(0, 4))
        if way == 0:
            found.pop(key)
        elif way == 1:
            found[key] = [8, "text"]
        elif way == 2 and isinstance(value, list):
            found[key] = [number, value[: len(value) // 2]]
        else:
            found[key] = [5, int(rng.choice(NUMBERS))]
    return found


@pytest.mark.parametrize("family", OF_EACH_KIND)
def test_wrong_keys(family, tmp_path, monkeypatch):
    write_checkpoint(family, tmp_path / "hf")
    said, rng = recorded(), np.random.default_rng(sum(family.encode()))
    keys = said[family]["keys"]
    for index in range(TRIES):
        changed = {**said, family: {**said[family], "keys": broken(rng, keys)}}
        monkeypatch.setattr(converted, "recorded", lambda changed=changed: changed)
        path = write_converted(family, tmp_path / "hf", tmp_path / f"{index}.gguf")
        tracemalloc.start()  # this measures only the reading of the file, because it makes everything slow
        try:
            whole_way(path)
        except ModelError as error:
            assert error.what
        finally:
            peak_bytes = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
        assert peak_bytes < MOST_BYTES
        path.unlink()


@pytest.mark.parametrize("family", OF_EACH_KIND)
def test_wrong_tensors(family, tmp_path, monkeypatch):
    write_checkpoint(family, tmp_path / "hf")
    rng, sound = np.random.default_rng(sum(family.encode())), converted.tensors_of
    for index in range(TRIES):

        def bent(*asked, rng=rng):
            for name, values in sound(*asked):
                way = int(rng.integers(0, 60))
                if way == 0:
                    continue
                if way == 1:
                    values = values[..., : max(1, values.shape[-1] // 2)]
                elif way == 2:
                    values = values[: max(1, len(values) // 2)]
                elif way == 3:
                    values = values.reshape(-1)
                elif way == 4 and values.ndim < 4:
                    values = values[None]
                yield name, values

        monkeypatch.setattr(converted, "tensors_of", bent)
        path = write_converted(family, tmp_path / "hf", tmp_path / f"{index}.gguf")
        try:
            whole_way(path)
        except ModelError as error:
            assert error.what
        path.unlink()


PIECES = ["<unk>", "<s>", "</s>", "\u2581", "\u2581a", "b", "", "##", "\u2581" * 3, "[PAD7]"]
TOKENIZERS: dict[str, bytes] = {
    "tokens": strings(PIECES),
    "token_type": array(5, 10, np.array([2, 3, 3, 1, 1, 1, 1, 4, 1, 5], np.int32).tobytes()),
    "scores": array(6, 10, np.arange(10, dtype=np.float32).tobytes()),
    "unknown_token_id": number(4, 0),
    "bos_token_id": number(4, 1),
    "eos_token_id": number(4, 2),
    "seperator_token_id": number(4, 2),
    "add_bos_token": number(7, 1),
    "add_eos_token": number(7, 1),
    "add_sep_token": number(7, 1),
    "add_space_prefix": number(7, 1),
    "remove_extra_whitespaces": number(7, 0),
    "normalizer.lowercase": number(7, 1),
    "precompiled_charsmap": array(0, len(charsmap()), charsmap()),
}
WRONG = (
    None, number(4, 9), number(4, 1 << 31), number(5, -1), number(7, 0), number(6, float("nan")), string("a"),
    strings([]), strings(["a"] * 10), strings([b"\xff"] * 10), array(6, 10, np.full(10, np.inf, np.float32).tobytes()),
    array(5, 10, np.full(10, 5, np.int32).tobytes()), array(5, 10, np.full(10, 6, np.int32).tobytes()), 
    array(0, 0, b""), array(0, 1100, bytes(1100)), array(0, 8, b"\xff" * 8),
)  # fmt: skip


@pytest.mark.parametrize("kind", ["bert", "t5"])
def test_wrong_vocabularies_of_encoders(kind, tmp_path):
    """They give one of our errors, or a tokenizer that takes every text."""
    rng, read = np.random.default_rng(7), 0
    for index in range(150):
        keys: dict[str, bytes | None] = {"model": string(kind), **TOKENIZERS}
        for name in rng.choice(sorted(TOKENIZERS), rng.integers(1, 4), replace=False).tolist():
            keys[name] = WRONG[int(rng.integers(len(WRONG)))]
        said = [(f"tokenizer.ggml.{name}", value) for name, value in keys.items() if value is not None]
        model = [(name, value) for name, value in BERT.items() if not name.startswith("tokenizer.")]
        tensors = [info("token_embd.weight", [8, len(PIECES)], 0, 0)]
        path = write(tmp_path / f"{index}.gguf", raw([*model, *said], tensors, bytes(32 * len(PIECES))))
        try:
            tokenizer = Tokenizer.from_folder(unfold(path, None))
        except ModelError as error:
            assert error.what
            continue
        read += 1
        for text in NASTY:
            assert all(0 <= each < len(PIECES) for each in tokenizer.encode_rendered(text))
        tokenizer.frame(True)
    assert read > 10
