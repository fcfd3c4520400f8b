"""`plan` and `generate` on a folder of GPT-2, because the commands must not depend on one family of models."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.in_process import run
from twostroke.assets import spark_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with random weights and the tokenizer of the embedded model."""
    import torch
    import transformers

    made = tmp_path_factory.mktemp("gpt2")
    vocab_size = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    torch.manual_seed(1)
    config = transformers.GPT2Config(vocab_size=vocab_size, n_embd=32, n_layer=2, n_head=2, n_positions=64)
    transformers.GPT2LMHeadModel(config).save_pretrained(made)
    shutil.copy(spark_path() / "tokenizer.json", made)
    return made


def test_plan_counts_its_parameters(folder: Path) -> None:
    import transformers

    parameters = transformers.GPT2LMHeadModel.from_pretrained(folder).num_parameters()
    result = run("plan", str(folder), "--hardware", "h200", "--weights", "int4")
    assert result.returncode == 0, result.stderr
    assert f"{parameters / 1e6:.3g} M parameters" in result.stdout


@pytest.mark.parametrize("weights", ["f32", "int4"])
def test_generate_continues_a_text(weights: str, folder: Path) -> None:
    words = ["generate", "--raw", "--json", "--max-tokens", "9", "--weights", weights, "--model", str(folder)]
    result = run(*words, "What is prefill?")
    assert result.returncode == 0, result.stderr
    assert len(json.loads(result.stdout)["completions"][0]["token_ids"]) == 9


def test_a_context_beyond_its_positions_is_refused(folder: Path) -> None:
    result = run("generate", "--raw", "--context", "65", "--model", str(folder), "What is prefill?")
    assert result.returncode == 2 and "the model's 64 positions" in result.stderr
