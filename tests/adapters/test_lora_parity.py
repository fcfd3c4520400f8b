"""Logits with adapters are compared with PEFT's, on tiny checkpoints of families that lay out their products in each
way."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import judged, kept
from tests.adapters.lora_files import Adapted, write_lora
from tests.models.families import stored
from tests.models.parity import BAR, relative_error
from twostroke.backends.cpu import CpuOps

TOKENS = 40
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "separate tensors of a joined product": ("llama3-grouped", {"target_modules": ALL}),
    "some of them": ("qwen3-head-norms", {"target_modules": ["q_proj", "v_proj"], "r": 8}),
    "all-linear, stabilized": ("qwen2-biases", {"target_modules": "all-linear", "use_rslora": True}),
    "a regular expression and patterns": (
        "llama-biases",
        {
            "target_modules": r".*layers\.(0|2)\..*(q|down)_proj",
            "rank_pattern": {r"layers\.\d+\.mlp\.down_proj": 7, "q_proj": 1},
            "alpha_pattern": {"model.layers.0.self_attn.q_proj": 3, "down_proj": 20},
        },
    ),
    "some layers": ("mistral-window", {"target_modules": ["v_proj", "up_proj"], "layers_to_transform": [1]}),
    "fused tensors": ("phi3", {"target_modules": ["qkv_proj", "gate_up_proj", "o_proj", "down_proj"]}),
    "transposed matrices": ("gpt2", {"target_modules": ["c_attn", "c_proj", "c_fc"], "fan_in_fan_out": True}),
    "rows in another order": ("gpt-neox", {"target_modules": ["query_key_value", "dense", "dense_h_to_4h"]}),
    "rotary pairs side by side": ("cohere", {"target_modules": ["q_proj", "k_proj", "o_proj"]}),
    "the head": ("llama3-grouped", {"target_modules": ["lm_head", "o_proj"]}),
}


@pytest.mark.parametrize("case", CASES)
def test_logits_agree_with_peft(case: str, tmp_path: Path) -> None:
    family, config = CASES[case]

    def make(folder: Path) -> dict[str, Any]:
        from tests.models.families import whole

        judge = whole.make_checkpoint(family, folder)
        token_ids = np.random.default_rng(5).integers(0, judge.get_input_embeddings().num_embeddings, TOKENS).tolist()
        alone = whole.logits(judge, token_ids)
        adapted = write_lora(judge, folder / "lora", **config)
        return {"token_ids": token_ids, "alone": alone, "expected": whole.logits(adapted, token_ids)}

    here = Path(__file__).with_name("lora_files.py")
    facts = ("adapter", family, sorted(config.items()), TOKENS, metadata.version("peft"), judged.code_of(here))
    made = kept.made((*facts, *stored.facts()), make)
    made.unpack(tmp_path)
    answers = made.answers()
    token_ids, alone, expected = answers["token_ids"].tolist(), answers["alone"], answers["expected"]
    assert relative_error(alone, expected) > 0.01
    ops = CpuOps(None, 2)
    loaded = Adapted(tmp_path, [tmp_path / "lora"], ops)
    for slot, law in ((0, expected), (-1, alone)):
        for chunks in ([TOKENS], [7, 16, 1, 16]):
            assert relative_error(loaded.run(token_ids, chunks, slot), law) < BAR
    ops.close()
