"""A plan needs only config.json and reads nothing else: in a folder, on a hub, and where a field is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.planner.figures import LLAMA3_70B
from tests.weights.fake_hub import FakeHub, Repo, serve
from twostroke.lab.planner.model_config import read_model
from twostroke.types.errors import ConfigError, ModelNotFound

COMMIT = "c" * 40


def hub_files(config: bytes) -> dict[str, Repo]:
    files = {"config.json": config, "model.safetensors": b"weights" * 1000, "tokenizer.json": b"{}"}
    return {"meta/big": Repo({COMMIT: files}, {"main": COMMIT}), "meta/empty": Repo({COMMIT: {}}, {"main": COMMIT})}


def read_from(hub: FakeHub, name: str, cache: Path) -> Any:
    return read_model(name, endpoint=hub.url, cache_dir=cache)


def test_of_a_hub_model_only_config_json_is_asked_for(tmp_path: Path) -> None:
    with serve(hub_files(json.dumps(LLAMA3_70B).encode())) as hub:
        found = read_from(hub, "meta/big", tmp_path)
        asked = {path for _, path in hub.requests}
    assert found.source == "meta/big" and found.spec.num_layers == 80
    assert asked == {"/meta/big/resolve/main/config.json"}
    kept = [path.name for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 64]
    assert "model.safetensors" not in kept and "tokenizer.json" not in kept


def test_a_model_without_config_json_is_said(tmp_path: Path) -> None:
    with serve(hub_files(b"{}")) as hub, pytest.raises(ModelNotFound, match=r"no config\.json"):
        read_from(hub, "meta/empty", tmp_path)


def test_an_unknown_model_is_said(tmp_path: Path) -> None:
    with serve(hub_files(b"{}")) as hub, pytest.raises(ModelNotFound, match="no model meta/absent"):
        read_from(hub, "meta/absent", tmp_path)


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    config = {name: value for name, value in LLAMA3_70B.items() if name != field}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=field):
        read_model(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "needle"),
    [
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"architectures": ["NobodysModel"]}, "NobodysModel"),
    ],
)
def test_a_field_that_cannot_be_is_named(tmp_path: Path, changes: dict[str, Any], needle: str) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**LLAMA3_70B, **changes}))
    with pytest.raises(ConfigError, match=needle):
        read_model(str(tmp_path))


def test_a_folder_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3_70B))
    assert read_model(str(tmp_path)).spec.paged_kinds[0].kv_heads * 128 == 1024


def test_the_embedded_model_is_known() -> None:
    assert read_model("spark").spec.num_layers == 5
