"""Layers that predict a further token: their logits compared with transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.speculate.heads.predicted import add_layers
from twostroke.assembly.guessing.ahead import AheadLayer
from twostroke.assembly.guessing.prediction import find_prediction
from twostroke.models.common.prediction import read_prediction
from twostroke.ops.quant.formats import F32
from twostroke.ops.reference import ReferenceOps
from twostroke.ops.step_memory import MemorySizes, StepMemory, StepSizes
from twostroke.runner.folder import load_folder
from twostroke.runner.forward import OpByOp
from twostroke.types.spec.fields import Fields
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.load import load_weights
from twostroke.weights.loaded import ModelWeights
from twostroke.weights.packed.numpy_packer import NumpyPacker

TOKENS = 21
KIND_OF = {"deepseek_v32": "indexed_attention", "glm_moe_dsa": "indexed_attention", "exaone_moe": "sliding_attention"}
"""The layer's kind, by the model's type, where it is not full_attention."""
FIELDS = {"exaone-moe": {"mtp_layer_types": ["sliding_attention"]}}
"""Fields that config.json needs in addition to the number of layers."""
FAMILIES = (
    ("deepseek-v3", 1),
    ("deepseek-v3", 3),
    ("glm-4.5", 1),
    ("glm-4.5", 2),
    ("glm-4.7-flash", 1),
    ("qwen3-next", 1),
    ("qwen3.5", 1),
    ("deepseek-v3.2", 2),
    ("glm-5", 1),
    ("exaone-moe", 1),
)


@pytest.mark.parametrize(("family", "layers"), FAMILIES)
def test_logits_of_the_layers_are_those_of_transformers(family: str, layers: int, tmp_path: Path) -> None:
    """Layer k reads the tokens that are k + 1 places further on, and the rows of layer k - 1."""
    from tests.models.families.whole import make_checkpoint

    judge = make_checkpoint(family, tmp_path)
    several = {"num_nextn_predict_layers": layers} if layers > 1 else {}
    add_layers(tmp_path, **several, **FIELDS.get(family, {}))
    model, weights = load_folder(tmp_path, F32)
    text = [(7 * i + i * i) % model.vocab_size for i in range(TOKENS + layers)]
    states, expected = judged(judge, tmp_path, text, layers)
    found = find_prediction(tmp_path, model).layers
    assert len(found) == layers
    for number, layer in enumerate(found):
        logits, states = logits_of(layer, tmp_path, weights, text[number + 1 : number + 1 + TOKENS], states)
        right = expected[number]
        assert np.abs(logits - right).max() < 1e-4 * (right.max() - right.min())


def logits_of(
    layer: AheadLayer, folder: Path, weights: ModelWeights, tokens: list[int], states: Any
) -> tuple[Any, Any]:
    """The logits, and the layer's rows."""
    with Checkpoint.open(folder) as checkpoint:
        own = load_weights(checkpoint, layer.own, lambda weight: F32, NumpyPacker())
    made, step, sizes = layer.made, StepSizes(TOKENS, 1, TOKENS), MemorySizes(2, 128, 64, 2, 0, TOKENS)
    memory = StepMemory(made.program, {**weights.matrices, **own.matrices}, own.vectors, KVKind.F32, sizes)
    memory.token_ids[:TOKENS] = tokens
    memory.positions[:TOKENS] = np.arange(TOKENS)
    memory.batch.row_starts[1], memory.batch.context_tokens[0] = TOKENS, TOKENS
    for group in memory.page_inputs:
        group.slots[:TOKENS] = np.arange(TOKENS)
        group.batch.page_table[0, :2] = (0, 1)
    memory.choose_logit_rows(np.arange(TOKENS, dtype=np.int32))
    memory.value(made.states, step)[...] = states
    logits = np.array(OpByOp(made.program, ReferenceOps(), memory)(step))
    assert made.rows is not None
    return logits, np.array(memory.value(made.rows, step))


def judged(judge: Any, folder: Path, tokens: list[int], layers: int) -> tuple[Any, list[Any]]:
    """The hidden states of the model after its last norm, and the logits of each layer, from the same files."""
    import torch
    from transformers.cache_utils import MtpCache
    from transformers.modeling_layers import MtpModel

    text = torch.tensor([tokens])
    config = judge.config.get_text_config()
    config.num_mtp_layers = layers
    for kinds, one in (
        ("layer_types", KIND_OF.get(config.model_type, "full_attention")),
        ("mlp_layer_types", "dense" if config.model_type == "exaone_moe" else "sparse"),
    ):
        if getattr(config, kinds, None) is not None:
            setattr(config, f"mtp_{kinds}", [one] * layers)
    numbers = "|".join(str(config.num_hidden_layers + number) for number in range(layers))
    judge._keys_to_ignore_on_load_unexpected = [rf"model\.layers\.({numbers})\..*", r"^mtp.*"]
    judge.config.name_or_path, judge.config.dtype = str(folder), torch.float32
    mtp = MtpModel.from_pretrained(judge).eval()
    if config.model_type in ("deepseek_v32", "glm_moe_dsa"):
        mtp.config.layer_types = None  # MtpModel makes no mask for layers with an index; they take the plain one
        for layer in mtp.layers:  # GLM-5's also give the positions that they chose, which MtpModel does not expect
            layer.mtp_block.register_forward_hook(lambda _, __, made: made[0] if isinstance(made, tuple) else made)
    found = []
    with torch.no_grad():
        hidden = states = judge.model(text[:, :TOKENS]).last_hidden_state
        cache = MtpCache(config=judge.config.get_mtp_config())
        for number in range(layers):
            positions = torch.arange(number + 1, number + 1 + TOKENS)[None]
            later = text[:, number + 1 : number + 1 + TOKENS]
            states = mtp.forward_layer(number, states, positions, cache, input_ids=later)
            found.append(mtp._project_to_logits(states)[0].numpy())
    return hidden[0].numpy(), found


def test_nemotrons_two_blocks_are_one_layer(tmp_path: Path) -> None:
    """Attention and experts are compared with transformers' blocks, because its MtpModel has one block for each
    layer."""
    import torch

    from tests.models.families.whole import make_checkpoint

    judge = make_checkpoint("nemotron-h-moe", tmp_path)
    add_layers(tmp_path, num_nextn_predict_layers=1, mtp_layers_block_type=["full_attention", "moe"])
    model, weights = load_folder(tmp_path, F32)
    (layer,) = find_prediction(tmp_path, model).layers
    tensors = {name: torch.tensor(array) for name, array in load_file(tmp_path / "model.safetensors").items()}
    text = torch.tensor([[(7 * i + i * i) % model.vocab_size for i in range(TOKENS + 1)]])

    def norm(name: str, x: torch.Tensor) -> torch.Tensor:
        eps = judge.config.layer_norm_epsilon
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * tensors[name]

    with torch.no_grad():
        states = judge.model(text[:, :TOKENS]).last_hidden_state
        words = judge.get_input_embeddings()(text[:, 1:])
        both = torch.cat([norm("mtp.layers.0.enorm.weight", words), norm("mtp.layers.0.hnorm.weight", states)], -1)
        x = both @ tensors["mtp.layers.0.eh_proj.weight"].T
        for number, like in enumerate((2, 1)):  # a layer of the model with attention, and one with experts
            block, prefix = copy.deepcopy(judge.model.layers[like]), f"mtp.layers.{number}."
            own = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
            block.load_state_dict(_fitting(own, block), strict=False)
            mask = torch.full((TOKENS, TOKENS), float("-inf")).triu(1)[None, None]
            x = block(x, attention_mask=mask if number == 0 else None)
        right = judge.lm_head(norm("mtp.layers.1.final_layernorm.weight", x))[0].numpy()
    assert np.abs(
        logits_of(layer, tmp_path, weights, text[0, 1:].tolist(), states[0].numpy())[0] - right
    ).max() < 1e-4 * (right.max() - right.min())


def _fitting(tensors: dict[str, Any], block: Any) -> dict[str, Any]:
    """The tensors under the block's names. transformers stacks the tensors that files have for each expert."""
    import torch

    found = dict(tensors)
    for name in block.state_dict():
        if name not in found:
            end = name.rpartition(".")[2]
            each = [key for key in tensors if ".experts." in key and key.endswith(f".{end}.weight")]
            each.sort(key=lambda key: int(key.split(".experts.")[1].split(".")[0]))
            found[name] = torch.stack([tensors[key] for key in each])
    return found


def test_an_architecture_without_such_a_layer_has_none() -> None:
    assert not read_prediction(Fields({"architectures": ["LlamaForCausalLM"]}, "config.json"))
