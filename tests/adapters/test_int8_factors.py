"""Adapters whose matrices are int8 with a scale for each rank: how far they move the distribution of the next token."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.adapters.lora_files import Adapted
from tests.adapters.random_lora import write_random_lora
from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.ops.operands import F32Array
from twostroke.ops.quant.formats import adapter_format
from twostroke.runner.folder import read_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.spec.formats import F32

ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TEXT = "The cache holds pages of keys and values. A page is shared by all requests that begin with the same tokens."


def divergence(law: F32Array, other: F32Array) -> float:
    """The mean over rows of KL(law || other), in nats, for logits (T, V)."""
    wide = [each.astype(np.float64) for each in (law, other)]
    right, found = (each - np.logaddexp.reduce(each, axis=1, keepdims=True) for each in wide)
    return float(np.mean(np.sum(np.exp(right) * (right - found), axis=1)))


def test_int8_factors_hardly_change_what_comes_next(tmp_path: Path) -> None:
    """The base weights are float32, so that nothing else is rounded. The adapter itself changes the distribution a
    lot."""
    folder = spark_path()
    token_ids = Tokenizer.from_folder(folder).encode_prompt(TEXT)
    write_random_lora(tmp_path, read_folder(folder), ALL, rank=16, size=0.03)
    ops, logits = CpuOps(None, 1), {}
    for name in ("f32", "int8"):
        engine = Adapted(folder, [tmp_path], ops, rank=16, factors=adapter_format(name))
        logits[name] = engine.run(token_ids, [len(token_ids)], 0)
        logits["none"] = engine.run(token_ids, [len(token_ids)], -1)
    ops.close()
    assert adapter_format("f32") is F32
    assert divergence(logits["f32"], logits["none"]) > 0.05
    assert 0 < divergence(logits["f32"], logits["int8"]) < 1e-4
