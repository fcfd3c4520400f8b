"""Mixtral and Qwen3-MoE: published sizes, the layers with experts, what a step reads of them, wrong configs.

tests/models/test_parity.py tests that their logits are transformers'.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests import kept
from tests.models.described import described
from tests.models.families.stored import FAMILIES, TOKENS, facts, judged_checkpoint, write_checkpoint
from tests.planner.figures import MIXTRAL_8X7B, QWEN3_30B_A3B
from twostroke.cost.step_work import WorkCounter
from twostroke.lab.planner.ask import make_ask
from twostroke.lab.planner.plan import make_plan, plan_json
from twostroke.lab.planner.plan_text import plan_text
from twostroke.lab.planner.target import named_target
from twostroke.models.common.registry import read_model
from twostroke.ops.products.experts import Experts
from twostroke.ops.program.op import StoredFormats
from twostroke.ops.program.work_table import work_table
from twostroke.ops.quant.codec import pack_weight
from twostroke.ops.quant.formats import format_choice, weight_format
from twostroke.runner.folder import load_folder
from twostroke.types.errors import ModelError
from twostroke.types.spec.formats import F32, KVKind
from twostroke.weights.tensors import wanted_tensors

MIXTURES = [name for name in FAMILIES if name.startswith(("mixtral", "qwen3-moe"))]


@pytest.mark.parametrize(
    ("config", "parameters", "active", "total_said", "active_said"),
    [
        # "46.7B total parameters but only uses 12.9B parameters per token" (Mistral AI, December 2023).
        (MIXTRAL_8X7B, 46_702_792_704, 12_879_925_248, "46.7 B", "12.9 B"),
        # "30.5B in total and 3.3B activated" (Qwen's model page), which rounds 3.353 down.
        (QWEN3_30B_A3B, 30_532_122_624, 3_353_032_704, "30.5 B", "3.35 B"),
    ],
)
def test_a_plan_names_the_published_sizes(
    config: dict[str, Any], parameters: int, active: int, total_said: str, active_said: str
) -> None:
    spec = read_model(config)
    assert (spec.parameters(), spec.program.active_parameters) == (parameters, active)
    assert described(**config).parameters == parameters
    plan = make_plan("somebody/model", spec, make_ask(spec, weights="int4"), named_target("h100-sxm"))
    assert f"{total_said} parameters ({active_said} for each token)" in plan_text(plan)
    assert plan_json(plan)["memory"]["active_parameters"] == active


@pytest.mark.parametrize("family", MIXTURES)
def test_all_tensors_that_transformers_writes_are_read(family: str, tmp_path: Path) -> None:
    judge = judged_checkpoint(family, tmp_path)
    model = read_model(json.loads((tmp_path / "config.json").read_text()))
    held = {name: tuple(tensor.shape) for name, tensor in load_file(tmp_path / "model.safetensors").items()}
    assert {tensor.name: tensor.shape for tensor in wanted_tensors(model)} == held
    assert model.parameters() == judge.parameters


@pytest.mark.parametrize("family", MIXTURES)
def test_no_choice_of_the_tiny_checkpoints_is_near_a_tie(family: str) -> None:
    """So only rounding decides parity: the last chosen logit is far from the first that was not chosen."""

    def measure(folder: Path) -> dict[str, Any]:
        from tests.models.families import whole

        judge, gaps = whole.make_checkpoint(family, folder), []
        chosen = judge.config.num_experts_per_tok

        def look(_module: object, _inputs: object, outputs: tuple[Any, ...]) -> None:
            found = outputs[0].sort(-1, descending=True).values
            gaps.append(float((found[:, chosen - 1] - found[:, chosen]).min()))

        for layer in judge.model.layers:
            if hasattr(layer.mlp, "gate"):
                layer.mlp.gate.register_forward_hook(look)
        whole.logits(judge, whole.some_tokens(judge, TOKENS))
        return {"gaps": np.array(gaps)}

    gaps = kept.made(("gaps of routers", family, *facts()), measure).answers()["gaps"]
    assert len(gaps) and gaps.min() > 1e-3


@pytest.mark.parametrize(
    ("changes", "sparse"),
    [
        ({}, [0, 1, 2, 3, 4, 5]),
        ({"decoder_sparse_step": 2}, [1, 3, 5]),
        ({"mlp_only_layers": [0, 4]}, [1, 2, 3, 5]),
        ({"decoder_sparse_step": 3, "mlp_only_layers": [2]}, [5]),
    ],
)
def test_layers_without_experts(changes: dict[str, Any], sparse: list[int]) -> None:
    config = {**QWEN3_30B_A3B, "num_hidden_layers": 6, **changes}
    spec = read_model(config)
    assert [index for index, has_experts in enumerate(described(**config).sparse) if has_experts] == sparse
    assert len([call for call in spec.program.calls if isinstance(call, Experts)]) == len(sparse)
    routers = [tensor.name for tensor in wanted_tensors(spec) if tensor.name.endswith("mlp.gate.weight")]
    assert routers == [f"model.layers.{index}.mlp.gate.weight" for index in sparse]


def test_a_step_reads_the_experts_that_its_rows_are_expected_to_choose() -> None:
    spec, chosen = read_model(MIXTRAL_8X7B), format_choice("int8")
    counter = WorkCounter(work_table(spec, StoredFormats(chosen, KVKind.BF16)))
    banks = [weight for weight in spec.program.weights if weight.experts]
    assert len(banks) == 2 * 32
    of_all = sum(8 * chosen(bank).total_bytes(bank.rows, bank.columns) for bank in banks)
    rest = counter.weights(0).weight_bytes
    for rows, share in ((1, 2 / 8), (2, 1 - (6 / 8) ** 2), (1000, 1.0)):
        assert counter.weights(rows).weight_bytes - rest == pytest.approx(of_all * share, rel=1e-6)
    # A multiplication and an addition for each parameter of the layers that a token uses, plus gates and sums.
    used = spec.program.active_parameters - 2 * spec.vocab_size * spec.hidden_size
    assert counter.weights(1).flops == pytest.approx(2 * used, rel=1e-3)


@pytest.mark.parametrize("name", ["f32", "bf16", "int8", "int4"])
def test_a_bank_holds_each_expert_as_if_it_was_packed_alone(name: str, tmp_path: Path) -> None:
    write_checkpoint("mixtral-window", tmp_path)
    _, weights = load_folder(tmp_path, weight_format(name))
    held = load_file(tmp_path / "model.safetensors")
    for layer, expert in itertools.product(range(3), range(5)):
        prefix = f"model.layers.{layer}.block_sparse_moe.experts."
        w1, w2, w3 = (held[f"{prefix}{expert}.w{part}.weight"] for part in (1, 2, 3))
        for key, values in ((f"{prefix}0.w1:gate_up", np.concatenate((w1, w3))), (f"{prefix}0.w2:down", w2)):
            found, alone = weights.matrices[key].expert(expert), pack_weight(values, weight_format(name))
            assert np.array_equal(found.data, alone.data)
            assert found.scales is alone.scales is None or np.array_equal(found.scales, alone.scales)


def test_routers_are_never_rounded() -> None:
    for config in (MIXTRAL_8X7B, QWEN3_30B_A3B):
        routers = [
            weight for weight in read_model(config).program.weights if weight.parts[0].name.endswith("gate.weight")
        ]
        assert routers and all(format_choice("int4")(weight) == F32 for weight in routers)


@pytest.mark.parametrize(
    ("config", "changes", "word"),
    [
        (MIXTRAL_8X7B, {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (MIXTRAL_8X7B, {"num_local_experts": 0}, "num_local_experts"),
        (MIXTRAL_8X7B, {"num_local_experts": 5000}, "num_local_experts"),
        (MIXTRAL_8X7B, {"sliding_window": 0}, "sliding_window"),
        (
            MIXTRAL_8X7B,
            {"layer_types": ["full_attention", "sliding_attention"] * 16, "sliding_window": 8},
            "layer_types",
        ),
        (QWEN3_30B_A3B, {"num_local_experts": 64}, "num_experts"),
        (QWEN3_30B_A3B, {"decoder_sparse_step": 0}, "decoder_sparse_step"),
        (QWEN3_30B_A3B, {"mlp_only_layers": "all"}, "mlp_only_layers"),
        (QWEN3_30B_A3B, {"moe_intermediate_size": -1}, "moe_intermediate_size"),
        (QWEN3_30B_A3B, {"hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_impossible_configs_name_the_field(config: dict[str, Any], changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ModelError, match=word) as caught:
        read_model({**config, **changes})
    assert caught.value.why and caught.value.fix


@pytest.mark.parametrize("name", ["MixtralForCausalLM", "Qwen3MoeForCausalLM"])
def test_what_a_silent_config_means_is_what_transformers_says(name: str) -> None:
    sizes = {"vocab_size": 99, "hidden_size": 256, "intermediate_size": 96, "num_hidden_layers": 2}
    sizes["num_attention_heads"] = 32
    spec = read_model({**sizes, "architectures": [name]})
    kind = {"MixtralForCausalLM": "mixtral", "Qwen3MoeForCausalLM": "qwen3_moe"}[name]
    judge = described(model_type=kind, **sizes)
    config = judge.config
    assert spec.parameters() == judge.parameters
    assert spec.max_positions == config["max_position_embeddings"]
    assert [each.kv_heads for each in spec.paged_kinds] == [config["num_key_value_heads"]] * 2
    assert {rope.spec.theta for rope in spec.program.ropes} == {config["rope_parameters"]["rope_theta"]}
    assert {call.eps for call in spec.program.calls if hasattr(call, "eps")} == {config["rms_norm_eps"]}
    (experts,) = {call.experts_of_a_row for call in spec.program.calls if isinstance(call, Experts)}
    assert experts == config["num_experts_per_tok"]
