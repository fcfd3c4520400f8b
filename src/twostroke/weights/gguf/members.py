"""Turns the keys of a GGUF file into the small files of a model's folder, once for each GGUF file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twostroke.weights.gguf.config import config_of
from twostroke.weights.gguf.container import GgufFile, StoredTensor
from twostroke.weights.gguf.families.table import family_of
from twostroke.weights.gguf.header import Value
from twostroke.weights.gguf.naming import rotation_divisors
from twostroke.weights.gguf.pooling import sentence_files
from twostroke.weights.gguf.sampling import sampling_of
from twostroke.weights.gguf.vocabulary.token_list import TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import as_json, chat_templates, special_texts, tokenizer_text


def members_of(path: Path, files: Mapping[str, GgufFile], tensors: Mapping[str, StoredTensor]) -> dict[str, str]:
    """Returns the small files of a model's folder, made from the keys of a GGUF file: file name -> text. path: the GGUF
    file. files: this file and its parts. tensors: the tensors of all parts. Raises CorruptModel, UnsupportedModel."""
    values: Mapping[str, Value] = files[path.name].values
    _, family, keys = family_of(values, path.name, tensors)
    vocabulary = TokenList.read(values, path.name)  # a file that is no language model may have no vocabulary
    config = config_of(family, keys, vocabulary, rotation_divisors(files))
    templates = chat_templates(values, path.name)
    said: dict[str, Any] = dict(special_texts(vocabulary))
    if templates:
        said["chat_template"] = [{"name": name, "template": text} for name, text in templates.items()]
        if list(templates) == ["default"]:
            said["chat_template"] = templates["default"]
    return {
        "config.json": as_json(config),
        "tokenizer.json": tokenizer_text(vocabulary),
        "tokenizer_config.json": as_json(said),
        "generation_config.json": as_json({"eos_token_id": vocabulary.end_ids, **sampling_of(values)}),
        **sentence_files(family.task, keys),
    }
