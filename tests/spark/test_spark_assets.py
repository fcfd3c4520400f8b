"""The shipped folders: present, small, and the same model in transformers as in the training code."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tools.spark.tokenizer import CHAT_TEMPLATE, DEFAULT_PATH, END

from tests.lazily import Lazily, torch, torch_files, transformers
from twostroke.assets import spark_draft_path, spark_path

evaluate, exporting, model = (Lazily(f"tools.spark.{name}") for name in ("evaluate", "export", "model"))
FOLDERS = [(spark_path(), "SPARK"), (spark_draft_path(), "SPARK_DRAFT")]
"""Folders that ship, and the names of their configs in tools/spark/model.py."""
FILES = {
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "README.md",
}


def test_sizes() -> None:
    assert 3_000_000 <= model.count_parameters(model.Llama(model.SPARK)) <= 10_000_000
    assert sum(path.stat().st_size for path in spark_path().iterdir()) <= 12_000_000


@pytest.mark.parametrize(("folder", "name"), FOLDERS)
def test_folder_is_whole(folder: Path, name: str) -> None:
    config = getattr(model, name)
    assert FILES <= {path.name for path in folder.iterdir()}
    saved = json.loads((folder / "config.json").read_text())
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert saved["architectures"] == ["LlamaForCausalLM"]
    assert saved["torch_dtype"] == "bfloat16"
    assert saved["hidden_size"] == config.hidden_size
    assert saved["vocab_size"] == tokenizer.get_vocab_size()
    assert saved["eos_token_id"] == tokenizer.token_to_id(END)
    assert json.loads((folder / "tokenizer_config.json").read_text())["chat_template"] == CHAT_TEMPLATE
    assert (folder / "chat_template.jinja").read_text() == CHAT_TEMPLATE


def test_both_folders_share_the_tokenizer() -> None:
    assert (spark_path() / "tokenizer.json").read_bytes() == (spark_draft_path() / "tokenizer.json").read_bytes()


@pytest.mark.parametrize(("folder", "name"), FOLDERS)
def test_logits_equal_those_of_transformers(folder: Path, name: str) -> None:
    config = getattr(model, name)
    weights = {key: tensor.float() for key, tensor in torch_files.load_file(folder / "model.safetensors").items()}
    ours = model.Llama(config).eval()
    ours.load_state_dict(weights)
    theirs = transformers.LlamaForCausalLM.from_pretrained(str(folder), dtype=torch.float32).eval()
    for time in (9, 500):  # short and long sequences take different attention code
        ids = torch.randint(0, config.vocab_size, (2, time), generator=torch.Generator().manual_seed(time))
        with torch.inference_mode():
            difference = (ours(ids) - theirs(ids).logits).abs().max()
        assert difference < 1e-3


@pytest.mark.parametrize(("folder", "name"), FOLDERS)
def test_export_writes_what_it_is_given(folder: Path, name: str, tmp_path: Path) -> None:
    config = getattr(model, name)
    weights = model.Llama(config).state_dict()
    exporting.export(config, weights, DEFAULT_PATH, tmp_path)
    saved = torch_files.load_file(tmp_path / "model.safetensors")
    assert saved.keys() == weights.keys() == torch_files.load_file(folder / "model.safetensors").keys()
    assert all(torch.equal(saved[key], weights[key].bfloat16()) for key in weights)


def test_spark_answers() -> None:
    answers = evaluate.Folder(spark_path()).answer(["What is prefill?", "what is ttft"])
    assert "prompt" in answers[0].lower()
    assert "first token" in answers[1].lower()
