"""transformers in float32 on published weights: the judge.

transformers reads a GGUF file with the `gguf` package, which takes a minute for a vocabulary of 262,144 words. The
judge gets token ids, so it reads a copy of the file without the vocabulary. Tensors are copied byte by byte.
"""

from __future__ import annotations

import copy
import shutil
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
import transformers

MAGIC_AND_VERSION_BYTES = 8
STRING, ARRAY, U32 = 8, 9, 4
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""The type of a value -> its bytes."""
ALIGNMENT = 32
VOCABULARY = b"tokenizer."


def _number(file: BinaryIO, layout: str) -> int:
    return int(struct.unpack(layout, file.read(struct.calcsize(layout)))[0])


def _string(file: BinaryIO) -> bytes:
    return file.read(_number(file, "<Q"))


def _skip_value(file: BinaryIO, kind: int) -> int:
    """Skips a value. Returns the number of its elements."""
    if kind == STRING:
        _string(file)
    elif kind == ARRAY:
        inner, count = _number(file, "<I"), _number(file, "<Q")
        if inner == STRING:
            for _ in range(count):
                _string(file)
        else:
            file.seek(count * SIZES[inner], 1)
        return count
    else:
        file.seek(SIZES[kind], 1)
    return 1


def without_vocabulary(source: Path, copy: Path) -> Path:
    """The file without the keys of its vocabulary. The number of its words becomes a key."""
    with source.open("rb") as file, copy.open("wb") as made:
        begin = file.read(MAGIC_AND_VERSION_BYTES)
        tensors, keys = _number(file, "<Q"), _number(file, "<Q")
        kept, architecture, words = [], b"", 0
        for _ in range(keys):
            start = file.tell()
            name, kind = _string(file), _number(file, "<I")
            value = file.tell()
            count = _skip_value(file, kind)
            end = file.tell()
            if name == b"general.architecture":
                file.seek(value)
                architecture = _string(file)
            if name == b"tokenizer.ggml.tokens":
                words = count
            file.seek(start)
            stored = file.read(end - start)
            if not name.startswith(VOCABULARY) and not name.endswith(b".vocab_size"):
                kept.append(stored)
        size = architecture + b".vocab_size"
        kept.append(struct.pack("<Q", len(size)) + size + struct.pack("<II", U32, words))
        start = file.tell()
        for _ in range(tensors):
            _string(file)
            file.seek(8 * _number(file, "<I") + 4 + 8, 1)
        end = file.tell()
        file.seek(start)
        made.write(begin + struct.pack("<QQ", tensors, len(kept)) + b"".join(kept) + file.read(end - start))
        made.write(bytes(-made.tell() % ALIGNMENT))
        file.seek(-file.tell() % ALIGNMENT, 1)
        shutil.copyfileobj(file, made, 1 << 20)
    return copy


def judge_of_file(file: Path, place: Path) -> transformers.PreTrainedModel:
    """The file's dequantized weights in float32. place: a folder for the copy."""
    slim = without_vocabulary(file, place / file.name)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(place, gguf_file=slim.name, dtype=torch.float32)
    slim.unlink()
    return with_rounded_factor(loaded.eval())


def with_rounded_factor(judge: transformers.PreTrainedModel) -> transformers.PreTrainedModel:
    """Gemma multiplies embeddings by the square root of their width. The published model does so in bfloat16, by 25.25
    where the width is 640. transformers rounds the factor to the type of the weights, which is float32 here."""
    scale = getattr(judge.get_input_embeddings(), "embed_scale", None)
    if scale is not None:
        scale.copy_(scale.to(torch.bfloat16).float())
    return judge


def as_folder(judge: transformers.PreTrainedModel, folder: Path) -> transformers.PreTrainedModel:
    """Writes a folder in the published form, in bfloat16. Returns the judge of it, in float32."""
    rounded = copy.deepcopy(judge).to(torch.bfloat16)
    rounded.is_quantized, rounded.hf_quantizer = False, None
    if hasattr(rounded.config, "quantization_config"):
        del rounded.config.quantization_config
    rounded.save_pretrained(folder)
    loaded = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return with_rounded_factor(loaded.eval())


def rows_after(
    judge: transformers.PreTrainedModel, prompt: Sequence[int], tokens: Sequence[int]
) -> np.ndarray:
    """The logits (tokens, V) by which each of the tokens after a prompt is chosen."""
    with torch.no_grad():
        return judge(torch.tensor([[*prompt, *tokens]]), logits_to_keep=len(tokens) + 1).logits[0, :-1].numpy()


def logits(judge: transformers.PreTrainedModel, token_ids: list[int]) -> np.ndarray:
    """The logits (T, V) of all positions."""
    with torch.no_grad():
        return judge(torch.tensor([token_ids])).logits[0].numpy()
