"""Folders of small random models with every kind of cache, and with the embedded model's tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from twostroke.assets import spark_path

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


def folder_of(family: str, folder: Path) -> Path:
    """A random checkpoint of the family."""
    vocabulary = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    sizes = {"max_position_embeddings": 512}
    folder.mkdir(parents=True, exist_ok=True)
    write_random({**config_of(family), **special, **sizes, "vocab_size": vocabulary}, folder)
    for name in TOKENIZER:
        if (spark_path() / name).is_file():
            shutil.copy(spark_path() / name, folder / name)
    return folder
