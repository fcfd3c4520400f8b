"""Random checkpoints of any model, made from its config alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import FAMILIES, config_of
from tests.models.parity import Loaded
from tests.tiers import COVERING, ENCODERS, rest_daily
from twostroke.cli.main import main
from twostroke.lab.bench import random_tensors
from twostroke.lab.bench.checkpoints import SHAPES, shape_folder, write_checkpoint
from twostroke.models.common.registry import read_model
from twostroke.ops.reference import ReferenceOps
from twostroke.runner.folder import load_folder
from twostroke.types.errors import ConfigError
from twostroke.types.spec.formats import F32
from twostroke.weights.checkpoint import Checkpoint

SMALL = {**SHAPES["llama-3.2-1b"], "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
SMALL |= {"num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 96, "vocab_size": 300}


@pytest.mark.parametrize("family", rest_daily(FAMILIES, (*COVERING, *ENCODERS)))
def test_every_family_runs_on_random_tensors_and_says_different_things(family: str, tmp_path: Path) -> None:
    """Loading compares names and shapes with the program. Logits are finite and depend on the tokens."""
    logits = Loaded(write_random(config_of(family), tmp_path), ReferenceOps()).run([5, 9, 31, 2], [4])
    assert np.isfinite(logits).all() and len(np.unique(logits, axis=0)) == 4
    assert logits.std() > 0.05


def test_equal_names_draw_equal_numbers_whatever_else_is_in_the_file(tmp_path: Path) -> None:
    models = [read_model({**SMALL, "num_hidden_layers": layers, "torch_dtype": "float32"}) for layers in (1, 2)]
    found = []
    for index, model in enumerate(models):
        folder = tmp_path / str(index)
        folder.mkdir()
        random_tensors.write_tensors(model, folder / "model.safetensors", "F32")
        with Checkpoint.open(folder) as checkpoint:
            found.append({name: checkpoint.read(name) for name in checkpoint.names})
    assert len(found[0]) < len(found[1])
    for name, values in found[0].items():
        assert np.array_equal(values, found[1][name])
    norm, product = found[0]["model.norm.weight"], found[0]["model.layers.0.mlp.down_proj.weight"]
    assert abs(norm.mean() - 1) < 0.1 and 0 < norm.std() < 0.2
    assert product.std() == pytest.approx(96**-0.5, rel=0.05)


def test_first_numbers_are_these(tmp_path: Path) -> None:
    """The numbers are whole numbers of PCG64 times one factor. A change here changes every random checkpoint."""
    random_tensors.write_tensors(read_model(SMALL), tmp_path / "model.safetensors", "F32")
    with Checkpoint.open(tmp_path) as checkpoint:
        row = checkpoint.read("model.embed_tokens.weight").reshape(-1)[:4]
    unit = np.float32(random_tensors.EMBEDDING_STD / random_tensors.UNIFORM_STD)
    assert [int(whole) for whole in np.rint(row / unit)] == FIRST


FIRST = [10766, -6319, -16981, -25033]


def test_any_config_is_a_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench phases --shape` takes the path of a config.json, for a family without a shape of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    config = tmp_path / "moe.json"
    config.write_text(json.dumps({**config_of("qwen3-moe"), "vocab_size": 300}))
    words = ["bench", "phases", "--shape", str(config), "--prompts", "8", "--batches", "1", "--at", "8", "--new", "4"]
    result = CliRunner().invoke(main, [*words, "--rounds", "1", "--context", "64", "--json"])
    assert result.exit_code == 0, result.output
    assert {figure["phase"] for figure in json.loads(result.stdout)["figures"]} == {"prefill", "decode"}
    (folder,) = (path.parent for path in (tmp_path / "cache").rglob("config.json"))
    assert folder.name == shape_folder(str(config), tmp_path).name
    model, _ = load_folder(folder, F32)
    assert model.architecture == "Qwen3MoeForCausalLM"
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert write_checkpoint(str(config), folder) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written


@pytest.mark.parametrize("shape", ["llama-3.2-2b", "/nowhere/config.json"])
def test_an_unknown_shape_is_one_error(shape: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no shape") as error:
        write_checkpoint(shape, tmp_path)
    assert "llama-3.2-1b" in str(error.value) and "config.json" in str(error.value)


def test_a_vocabulary_without_room_for_bytes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SMALL, "vocab_size": 200}))
    with pytest.raises(ConfigError, match="A vocabulary of 200 is too small"):
        write_checkpoint(str(tmp_path), tmp_path / "made")
    assert not (tmp_path / "made").exists()
