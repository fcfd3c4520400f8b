"""Random GGUF files with the shapes of families: numbers of the wanted size, files that load and run, and the limits of
experts."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
from tools.families.memory import held_and_planned
from tools.families.random_blocks import BLOCKS
from tools.families.random_file import described, write_random
from tools.families.shapes import SHAPES

from twostroke.backends.cpu.limits import Limits
from twostroke.lab.bench import cases
from twostroke.models.common.registry import read_model
from twostroke.types.spec.formats import F32, KVKind
from twostroke.weights.gguf.block_types import BLOCK_TYPES
from twostroke.weights.gguf.blocks import decode

LIMITS = Limits(2, "avx512", 30e9, 1e15, 1e15)
MIXTURE = {
    **{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "vocab_size": 2048, "hidden_size": 256},
    **{"intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2},
    **{"head_dim": 64, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256},
    **{"norm_topk_prob": True, "tie_word_embeddings": False, "max_position_embeddings": 4096},
}


@pytest.mark.parametrize("name", BLOCKS)
def test_random_blocks_have_the_wanted_size(name: str) -> None:
    kind = BLOCKS[name]
    stored = BLOCK_TYPES[kind.number]
    assert (stored.name, stored.elements, stored.num_bytes) == (name, kind.elements, kind.num_bytes)
    made = kind.draw(np.random.default_rng(1), 4000, 0.02)
    values = decode(stored, made).values()
    assert np.isfinite(values).all() and abs(values.mean()) < 0.002
    assert 0.012 < values.std() < 0.028  # scales of MXFP4 are powers of two


def test_a_file_loads_runs_and_is_the_same_again(tmp_path: Path) -> None:
    first, again = tmp_path / "one-Q4_K_M.gguf", tmp_path / "two" / "one-Q4_K_M.gguf"
    write_random(MIXTURE, "Q4_K_M", first)
    write_random(MIXTURE, "Q4_K_M", again)
    assert first.read_bytes() == again.read_bytes()
    found = held_and_planned(first, 1, 64, 2)
    assert found["arena_bytes"] == found["planned"]["buffer_bytes"]
    assert found["cache_bytes"] == found["planned"]["kv_memory"]


def test_limits_count_chosen_experts_and_windows() -> None:
    spec = read_model(MIXTURE)
    one = cases.bound(cases.decode(1, 100), spec, F32, KVKind.F32, LIMITS)
    attention = 256 * (4 + 2 * 2) * 64 + 4 * 64 * 256
    router = 64 * 256  # rows of packed weights are a multiple of 64
    elements = 2 * (attention + router + 2 * 3 * 256 * 256) + 2048 * 256
    kv_bytes = (100 + 32 + 1) * 2 * 2 * 2 * 64 * 4
    assert one is not None and one.tokens_per_s == pytest.approx(30e9 / (4 * elements + kv_bytes), rel=1e-3)
    gemma = read_model(dict(SHAPES["gemma3-4b"].config))
    near, far = (cases.bound(cases.decode(1, context), gemma, F32, KVKind.BF16, LIMITS) for context in (1024, 32_768))
    assert near is not None and far is not None
    more_s = 1 / far.tokens_per_s - 1 / near.tokens_per_s
    full_layers = 5  # every sixth of 34 layers
    assert more_s == pytest.approx(full_layers * (32_768 - 1024) * 2 * 4 * 256 * 2 / 30e9, rel=0.02)


@pytest.mark.parametrize("name", SHAPES)
def test_names_are_those_that_llama_cpp_reads(name: str) -> None:
    """The names are compared with the tables of the `gguf` package, which llama.cpp's converter uses."""
    arch, plans = described({**SHAPES[name].config, "num_hidden_layers": 4})
    number = next(each for each, known in gguf.MODEL_ARCH_NAMES.items() if known == arch)
    known = {gguf.TENSOR_NAMES[each].removeprefix("blk.{bid}.") for each in gguf.MODEL_TENSORS[number]}
    assert {plan.stem for plan in plans} <= known
