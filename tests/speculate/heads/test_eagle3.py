"""EAGLE-3 layers: the formula next to NumPy, the engine's bits with one, and layers that do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.speculate.heads.test_mtp import KINDS, TEXTS
from tests.speculate.test_real_engine import AllOfThem
from tests.weights.checkpoints import save
from twostroke import LLM
from twostroke.assembly.guessing.eagle import find_eagle, with_places_kept
from twostroke.assets import spark_path
from twostroke.ops.quant.formats import F32
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import load_folder, read_folder
from twostroke.runner.forward import OpByOp
from twostroke.types.errors import ConfigError
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker

WIDTH, HEADS, KV_HEADS, DIM, INNER, TOKENS, WHOLE = 256, 4, 2, 64, 320, 700, 4096
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLMEagle3"],
    **{"hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "head_dim": DIM},
    **{"intermediate_size": INNER, "vocab_size": WHOLE, "draft_vocab_size": TOKENS, "num_hidden_layers": 1},
    **{"rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu"},
    "eagle_aux_hidden_state_layer_ids": [1, 2, 4],
}
SHAPES = {
    "fc": (WIDTH, 3 * WIDTH),
    "lm_head": (TOKENS, WIDTH),
    "norm": (WIDTH,),
    **{f"midlayer.{name}": (WIDTH,) for name in ("hidden_norm", "input_layernorm", "post_attention_layernorm")},
    "midlayer.self_attn.q_proj": (HEADS * DIM, 2 * WIDTH),
    "midlayer.self_attn.k_proj": (KV_HEADS * DIM, 2 * WIDTH),
    "midlayer.self_attn.v_proj": (KV_HEADS * DIM, 2 * WIDTH),
    "midlayer.self_attn.o_proj": (WIDTH, HEADS * DIM),
    "midlayer.mlp.gate_proj": (INNER, WIDTH),
    "midlayer.mlp.up_proj": (INNER, WIDTH),
    "midlayer.mlp.down_proj": (WIDTH, INNER),
}
CHOSEN = np.arange(TOKENS) * 5 + np.tile([0, 1, 2, 3, 4], TOKENS // 5)
"""The model's tokens that the layer knows; 300 and similar ones are among them."""


def write(folder: Path, config: dict[str, Any], changed: dict[str, np.ndarray | None]) -> dict[str, np.ndarray]:
    """Writes the published layout; `changed` replaces tensors, or leaves them out. Returns the tensors."""
    rng = np.random.default_rng(4)
    tensors = {
        f"{name}.weight": rng.standard_normal(shape, np.float32) * np.float32(shape[-1] ** -0.5) + (len(shape) == 1)
        for name, shape in SHAPES.items()
    }
    tensors["d2t"] = CHOSEN - np.arange(TOKENS)
    tensors["t2d"] = np.isin(np.arange(WHOLE), CHOSEN)
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    kept = {**tensors, **changed}
    save(folder / "model.safetensors", {name: tensor for name, tensor in kept.items() if tensor is not None})
    return tensors


def by_formula(w: dict[str, np.ndarray], words: np.ndarray, three: np.ndarray) -> np.ndarray:
    """The logits of the layer's own tokens, as the paper's code computes them."""

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}.weight"]

    def turned(x: np.ndarray) -> np.ndarray:
        angles = np.arange(len(x))[:, None] * 10000.0 ** (-np.arange(0, DIM, 2) / DIM)
        cos, sin = (np.concatenate([f(angles)] * 2, -1)[:, None] for f in (np.cos, np.sin))
        first, second = np.split(x, 2, -1)
        return x * cos + np.concatenate([-second, first], -1) * sin

    def share(scores: np.ndarray) -> np.ndarray:
        powers = np.exp(scores - scores.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    w = {name: values.astype(np.float64) for name, values in w.items()}
    state = three @ w["fc.weight"].T
    both = np.concatenate([norm(words, "midlayer.input_layernorm"), norm(state, "midlayer.hidden_norm")], -1)
    q, k, v = ((both @ w[f"midlayer.self_attn.{n}_proj.weight"].T).reshape(len(both), -1, DIM) for n in "qkv")
    q, k, v = turned(q), np.repeat(turned(k), 2, 1), np.repeat(v, 2, 1)
    scores = np.einsum("qhd,khd->hqk", q, k) / DIM**0.5
    scores = scores + np.triu(np.full(scores.shape[1:], -np.inf), 1)
    seen = np.einsum("hqk,khd->qhd", share(scores), v).reshape(len(both), -1)
    x = state + seen @ w["midlayer.self_attn.o_proj.weight"].T
    h = norm(x, "midlayer.post_attention_layernorm")
    gate, up = (h @ w[f"midlayer.mlp.{n}_proj.weight"].T for n in ("gate", "up"))
    x = x + (gate / (1 + np.exp(-gate)) * up) @ w["midlayer.mlp.down_proj.weight"].T
    found: np.ndarray = norm(x, "norm") @ w["lm_head.weight"].T
    return found


def test_the_layer_is_the_formula(tmp_path: Path) -> None:
    tensors, count = write(tmp_path, {}, {}), 21
    found = find_eagle(tmp_path, with_places_kept(read_folder(spark_path()), tmp_path))
    _, weights = load_folder(spark_path(), F32)
    layer = found.layers[0]
    with Checkpoint.open(tmp_path) as checkpoint:
        own = load_weights(checkpoint, layer.own, lambda weight: F32, NumpyPacker())
    three = np.random.default_rng(1).standard_normal((count, 3 * WIDTH), np.float32)
    step = StepSizes(count, 1, count)
    matrices = {**weights.matrices, **own.matrices}
    memory = StepMemory(layer.made.program, matrices, own.vectors, KVKind.F32, MemorySizes(2, 128, 64, 2, 0, count))
    memory.token_ids[:count] = memory.positions[:count] = memory.slots[:count] = np.arange(count)
    memory.batch.row_starts[1], memory.batch.context_tokens[0] = count, count
    memory.batch.page_table[0, :2] = (0, 1)
    memory.choose_logit_rows(np.arange(count, dtype=np.int32))
    states = np.empty((count, WIDTH), np.float32)
    ReferenceOps().linear(states, three, own.matrices["fc:eagle"])  # type: ignore[attr-defined]
    memory.value(layer.made.states, step)[...] = states
    logits = OpByOp(layer.made.program, ReferenceOps(), memory)(step)
    table = unpack(weights.matrices[layer.made.shared[0].key])
    right = by_formula(tensors, np.array(table[:count]), three)
    assert np.abs(logits - right).max() < 1e-4 * (right.max() - right.min())
    assert found.tokens == tuple(CHOSEN.tolist())


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = tmp_path_factory.mktemp("eagle3")
    write(folder, {}, {})
    with LLM("spark", speculate=f"eagle:{folder}", context=256, max_sequences=4, threads=2) as made:
        made._built.guesser._limiter = AllOfThem(made._built.guesser._limiter.times)
        yield made


@pytest.mark.parametrize("kind", KINDS)
def test_an_eagle_3_layer_gives_the_same_bits(llm: LLM, kind: str) -> None:
    words = {"allowed_token_ids": (300, 306, 312)} if kind == "three tokens" else {}
    params, totals = SamplingParams(max_tokens=40, **{**KINDS[kind], **words}), llm._built.guesser.totals
    before = totals.guessed
    encoded = [tuple(llm._built.tokenizer.encode_prompt(text)) for text in TEXTS]
    first, second = (
        [each.completions[0] for each in llm.engine.generate([Prompt(text, params, speculate=way) for text in encoded])]
        for way in ("eagle", "off")
    )
    assert [(each.token_ids, each.logprobs) for each in first] == [(each.token_ids, each.logprobs) for each in second]
    assert totals.guessed > before
    if kind == "three tokens":
        assert totals.accepted > 0
    assert llm._built.cache.pages_used == 0


@pytest.mark.parametrize(
    ("config", "changed", "words"),
    [
        ({"hidden_size": 128}, {}, "hidden_size.*256 numbers"),
        ({"vocab_size": 32000}, {}, "vocab_size.*4,096 tokens"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 1, 4]}, {}, "eagle_aux_hidden_state_layer_ids.*Three different"),
        ({"eagle_aux_hidden_state_layer_ids": [1, 2, 5]}, {}, "model's 5"),
        ({}, {"midlayer.mlp.up_proj.weight": None}, r"midlayer\.mlp\.up_proj\.weight is missing"),
        (
            {},
            {"fc.weight": np.zeros((256, 512), np.float32)},
            r"fc\.weight has the shape \[256, 512\], expected \[256, 768\]",
        ),
        ({}, {"d2t": None}, "tensor d2t must hold 700"),
        ({}, {"d2t": np.full(TOKENS, 9999)}, "d2t names tokens that the model does not have"),
    ],
)
def test_layers_that_do_not_fit_are_refused_by_the_tensor(
    tmp_path: Path, config: dict[str, Any], changed: dict[str, np.ndarray | None], words: str
) -> None:
    write(tmp_path, config, changed)
    with pytest.raises(ConfigError, match=words):
        LLM("spark", speculate=f"eagle:{tmp_path}")
