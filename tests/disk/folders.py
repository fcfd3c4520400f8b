"""Folders of small random models with every kind of cache, and with the embedded model's tokenizer."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.bench.random_checkpoint import write_random
from tests.models.families.dense import DENSE
from tests.models.families.experts import EXPERTS
from tests.models.families.latent import LATENT
from tests.models.families.states import STATES
from twostroke.assets import spark_path

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
FAMILIES = {**DENSE, **EXPERTS, **LATENT, **STATES}


def folder_of(family: str, folder: Path) -> Path:
    """A random checkpoint of the family."""
    vocabulary = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    sizes = {"max_position_embeddings": 512}
    folder.mkdir(parents=True, exist_ok=True)
    write_random({**FAMILIES[family]().to_dict(), **special, **sizes, "vocab_size": vocabulary}, folder)
    for name in TOKENIZER:
        if (spark_path() / name).is_file():
            shutil.copy(spark_path() / name, folder / name)
    return folder
