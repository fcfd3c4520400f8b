"""Folders of adapters with errors: each gives one error that names the file, the field or the tensor."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.adapters.random_lora import write_random_lora
from tests.models.families.stored import config_of
from twostroke.models.common.registry import read_model
from twostroke.ops.passes.with_adapters import AdapterSpec, linear_tensors, with_adapters
from twostroke.runner.adapters.bank import AdapterBank
from twostroke.runner.adapters.lora_folder import LoraFolder, named_errors
from twostroke.runner.adapters.shelf import AdapterShelf
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.types.spec.formats import BF16

MODEL = read_model(config_of("llama3-grouped"))
Q0 = "base_model.model.model.layers.0.self_attn.q_proj"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_random_lora(tmp_path / "lora", MODEL, ["q_proj", "down_proj"])


def change(folder: Path, **fields: Any) -> None:
    path = folder / "adapter_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


def change_tensors(folder: Path, edit: Callable[[dict[str, Any]], None]) -> None:
    tensors = load_file(folder / "adapter_model.safetensors")
    edit(tensors)
    save_file(tensors, folder / "adapter_model.safetensors")


def both(module: str, tensor: Any) -> dict[str, Any]:
    return {f"{module}.lora_{half}.weight": tensor for half in "AB"}


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as error, named_errors("mine"), LoraFolder.open(folder, MODEL) as opened:
        for name in opened.modules:
            opened.matrices(name)
    assert "'mine'" in error.value.what and "model again" not in error.value.fix
    return error.value.what + " " + error.value.why


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("peft_type", "IA3"),
        ("r", 0),
        ("r", 100_000),
        ("r", "eight"),
        ("lora_alpha", None),
        ("lora_alpha", 1e9),
        ("use_dora", True),
        ("use_rslora", "yes"),
        ("modules_to_save", ["lm_head"]),
        ("bias", "lora_only"),
        ("lora_bias", True),
        ("init_lora_weights", "pissa"),
        ("target_parameters", ["mlp.experts.gate_up_proj"]),
        ("trainable_token_indices", [3]),
        ("alora_invocation_tokens", [1, 2]),
        ("layer_replication", [[0, 2]]),
        ("some_later_field", {"kind": "new"}),
        ("rank_pattern", {"q_proj": 5000}),
        ("rank_pattern", {"(?=q)": 4}),
        ("alpha_pattern", {"q_proj": "a"}),
        ("target_modules", "(q_proj"),
        ("target_modules", [1]),
        ("layers_to_transform", ["a"]),
    ],
)
def test_a_field_that_cannot_be_honoured_is_refused_by_its_name(folder: Path, field: str, value: Any) -> None:
    change(folder, **{field: value})
    assert field in refusal(folder)


@pytest.mark.parametrize(
    "fields",
    [
        {"target_modules": ["q_proj"]},
        {"target_modules": "model.layers.0.*"},
        {"exclude_modules": ["down_proj"]},
        {"layers_to_transform": [0, 1]},
    ],
)
def test_tensors_of_modules_that_the_config_does_not_name_are_refused(folder: Path, fields: dict[str, Any]) -> None:
    change(folder, **fields)
    assert "target_modules" in refusal(folder)


def test_tensors_that_do_not_fit_are_refused_by_their_names(folder: Path) -> None:
    a, b = f"{Q0}.lora_A.weight", f"{Q0}.lora_B.weight"
    kept = load_file(folder / "adapter_model.safetensors")
    edits: list[tuple[str, Callable[[dict[str, Any]], None]]] = [
        (b, lambda tensors: tensors.pop(b)),
        (a, lambda tensors: tensors.update({a: tensors[a][:, :-1].copy()})),
        (b, lambda tensors: tensors.update({b: tensors[b][:-1].copy()})),
        (a, lambda tensors: tensors.update({a: tensors[a][:-1].copy()})),
        (a, lambda tensors: tensors.update({a: tensors[a].reshape(-1).copy()})),
        (a, lambda tensors: tensors.update({a: tensors[a].astype(np.int8)})),
        (a, lambda tensors: tensors[a].__setitem__((0, 0), np.nan)),
        (b, lambda tensors: tensors[b].__setitem__((0, 0), 3e38)),
        ("lora_embedding_A", lambda tensors: tensors.update({"base_model.model.x.lora_embedding_A": tensors[a]})),
        ("lora_magnitude", lambda tensors: tensors.update({f"{Q0}.lora_magnitude_vector": tensors[a]})),
        ("layers.9", lambda tensors: tensors.update(both(Q0.replace(".0.", ".9."), tensors[a]))),
        ("experts", lambda tensors: tensors.update(both("base_model.model.experts", tensors[a]))),
        ("lm_head.weight", lambda tensors: tensors.update({"base_model.model.lm_head.weight": tensors[a]})),
        ("no tensors", lambda tensors: tensors.clear()),
    ]  # fmt: skip
    for needle, edit in edits:
        save_file(kept, folder / "adapter_model.safetensors")
        change_tensors(folder, edit)
        assert needle in refusal(folder), needle


def test_files_that_are_missing_or_broken_are_refused(folder: Path, tmp_path: Path) -> None:
    path = folder / "adapter_model.safetensors"
    path.write_bytes(path.read_bytes()[:-5])
    assert "adapter_model.safetensors" in refusal(folder)
    path.unlink()
    assert "adapter_model.safetensors" in refusal(folder)
    (folder / "adapter_model.bin").write_bytes(b"x")
    assert "adapter_model.bin" in refusal(folder)
    (folder / "adapter_config.json").write_text("{")
    assert "adapter_config.json" in refusal(folder)
    (folder / "adapter_config.json").unlink()
    assert "adapter_config.json" in refusal(folder)
    assert "no folder" in refusal(tmp_path / "nothing")


def shelf_of(count: int, rank: int = 8) -> AdapterShelf:
    spec = AdapterSpec(count, dict.fromkeys(linear_tensors(MODEL.plain), rank))
    bank = AdapterBank(with_adapters(MODEL.plain, spec).parts, BF16)
    return AdapterShelf(bank, lambda path: LoraFolder.open(path, MODEL))


def test_a_shelf_keeps_what_requests_have_taken(folder: Path, tmp_path: Path) -> None:
    shelf, other = shelf_of(2), write_random_lora(tmp_path / "other", MODEL, ["q_proj"], seed=2)
    shelf.load("a", folder)
    shelf.load("b", other)
    first, second = shelf.take("a"), shelf.take("b")
    assert {first.slot, second.slot} == {0, 1} and first.salt != second.salt
    with pytest.raises(ConfigError, match="loaded already"):
        shelf.load("a", folder)
    with pytest.raises(ConfigError, match="All 2 places"):
        shelf.load("c", folder)
    shelf.unload("a")
    with pytest.raises(InvalidRequest, match="'a'"):
        shelf.take("a")
    with pytest.raises(ConfigError, match="All 2 places"):  # a request still uses it
        shelf.load("c", folder)
    shelf.give_back(first.slot)
    shelf.load("c", folder)
    assert shelf.take("c") == first  # the same content has the same salt
    assert [each.name for each in shelf.loaded()] == ["b", "c"]
    with pytest.raises(ConfigError, match="'base'"):
        shelf.reserve("base")
        shelf.load("base", folder)


def test_an_adapter_may_take_the_place_of_one_with_its_name(folder: Path, tmp_path: Path) -> None:
    shelf, other = shelf_of(2), write_random_lora(tmp_path / "other", MODEL, ["q_proj"], seed=2)
    shelf.load("a", folder)
    before = shelf.take("a")
    shelf.load("a", other, again=True)
    after = shelf.take("a")
    assert after.slot != before.slot and after.salt != before.salt


def test_what_cannot_be_loaded_changes_nothing(folder: Path, tmp_path: Path) -> None:
    shelf, large = shelf_of(1), write_random_lora(tmp_path / "large", MODEL, ["q_proj"], rank=9)
    with pytest.raises(ConfigError, match="rank 9.*room for 8"):
        shelf.load("large", large)
    change_tensors(large, lambda tensors: tensors.popitem())
    with pytest.raises(ConfigError, match="large"):
        shelf.load("large", large)
    assert shelf.loaded() == ()
    shelf.load("a", folder)
    assert shelf.take("a").slot == 0
