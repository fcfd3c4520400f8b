"""Spark with outliers: the same model, whose activations have outliers of the kind that large models are known for.

A few channels of each norm's output are FACTOR times as large, and the matrix columns that read them are smaller by the
same factor. In each head, one rotated pair of K's channels is KEY_FACTOR times as large, and that of Q is smaller by
the same factor. Factors are powers of two, so that every number is exact and the model computes the same.

    python -m tools.spark.outliers FOLDER
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from tests.weights.checkpoints import read_tensors, save

from twostroke.assets import spark_path

FACTOR = 32.0
CHANNELS = (5, 77, 200)
KEY_FACTOR = 8.0
HEAD_DIM, PAIR = 64, (1, 33)
READERS = {
    "input_layernorm": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "post_attention_layernorm": ("mlp.gate_proj", "mlp.up_proj"),
}


def write_outlier_spark(folder: Path) -> Path:
    """Writes a folder like spark's, but with outliers. Returns the folder. Raises FileExistsError."""
    shutil.copytree(spark_path(), folder)
    tensors = read_tensors(folder / "model.safetensors")
    channels = list(CHANNELS)
    for name in [name for name in tensors if name.endswith("layernorm.weight")]:
        layer, _, norm = name.removesuffix(".weight").rpartition(".")
        tensors[name][channels] *= FACTOR
        for reader in READERS[norm]:
            tensors[f"{layer}.{reader}.weight"][:, channels] /= FACTOR
    for name, values in tensors.items():
        if name.endswith(("q_proj.weight", "k_proj.weight")):
            heads = values.reshape(-1, HEAD_DIM, values.shape[1])
            heads[:, list(PAIR)] *= KEY_FACTOR if name.endswith("k_proj.weight") else 1 / KEY_FACTOR
    save(folder / "model.safetensors", tensors, "BF16")
    return folder


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    print(write_outlier_spark(parser.parse_args().folder))
