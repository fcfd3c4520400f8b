"""Real models for the hub of the tests: the embedded one as a GGUF file, whole and in parts."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.weights.fake_hub import Repo
from twostroke.assets import spark_path
from twostroke.quantize.driver.calibrate import no_progress
from twostroke.quantize.gguf.write import MIXES, write_folder

COMMIT = "c" * 40
NAME = "Spark-Q8_0.gguf"
HUGE: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "vocab_size": 128256, "hidden_size": 16384, "num_hidden_layers": 126,
    "num_attention_heads": 128, "num_key_value_heads": 8, "intermediate_size": 53248,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
}  # fmt: skip
"""The sizes of Llama 3.1 405B, which no developer's machine can hold in 8 bits."""


@cache
def spark_gguf() -> bytes:
    """The embedded model as a GGUF file."""
    with TemporaryDirectory() as folder:
        return write_folder(spark_path(), Path(folder) / "made", MIXES["Q8_0"], "spark", no_progress).read_bytes()


def spark_files() -> dict[str, bytes]:
    """The embedded model as a folder."""
    return {path.name: path.read_bytes() for path in spark_path().iterdir() if path.is_file()}


def repos() -> dict[str, Repo]:
    """acme/spark: safetensors. acme/spark-GGUF: a GGUF file. acme/huge: fits nowhere. acme/strange: has an architecture
    that does not run. acme/gated: for clients with the token `hf_yes`."""
    huge = {"config.json": json.dumps(HUGE).encode(), "model.safetensors": b"x" * 4096}
    strange = {"config.json": b'{"architectures": ["NoSuchForCausalLM"]}', "model.safetensors": b"x" * 4096}
    ggufs = {NAME: spark_gguf(), "README.md": b"no"}
    return {
        "acme/spark": Repo({COMMIT: spark_files()}, {"main": COMMIT}, card={"license": "mit"}),
        "acme/spark-GGUF": Repo({COMMIT: ggufs}, {"main": COMMIT}, card={"license": "apache-2.0"}),
        "acme/huge": Repo({COMMIT: huge}, {"main": COMMIT}),
        "acme/strange": Repo({COMMIT: strange}, {"main": COMMIT}),
        "acme/gated": Repo({COMMIT: ggufs}, {"main": COMMIT}, gated=True, token="hf_yes"),
    }
