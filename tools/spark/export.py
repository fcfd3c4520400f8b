"""Writes a checkpoint as the Hugging Face folder that ships inside the package."""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tools.spark.card import card
from tools.spark.corpus import load
from tools.spark.evaluate import ASSETS, HELD_OUT_JSON
from tools.spark.model import ModelConfig
from tools.spark.tokenizer import BOS, DEFAULT_PATH, END, PAD, save_folder, token_id
from tools.spark.train import RUNS, load_average
from torch import Tensor


def config_json(config: ModelConfig, tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the content of config.json."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "bfloat16",
        **config.to_dict(),
        "rope_scaling": None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_cache": True,
        "bos_token_id": token_id(tokenizer, BOS),
        "eos_token_id": token_id(tokenizer, END),
        "pad_token_id": token_id(tokenizer, PAD),
    }


def generation_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Returns the content of generation_config.json. Sampling is greedy, as the model was trained and scored for it."""
    return {
        "bos_token_id": token_id(tokenizer, BOS),
        "eos_token_id": token_id(tokenizer, END),
        "pad_token_id": token_id(tokenizer, PAD),
        "do_sample": False,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def export(config: ModelConfig, weights: dict[str, Tensor], tokenizer_path: Path, folder: Path) -> None:
    """Write the folder, without its model card. `weights` have Hugging Face's names; the tied head is not written."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(tokenizer_path))
    save_folder(tokenizer_path.read_text(encoding="utf-8"), folder)
    _write_json(folder / "config.json", config_json(config, tokenizer))
    _write_json(folder / "generation_config.json", generation_json(tokenizer))
    tensors = {name: tensor.to(torch.bfloat16).contiguous() for name, tensor in weights.items()}
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # safetensors writes it for the owner alone


def main() -> None:
    """Export a checkpoint into the package's assets, with its model card."""
    parser = argparse.ArgumentParser(
        description="Example: python -m tools.spark.export\n\n" + (main.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--draft", action="store_true", help="the draft model instead of spark")
    parser.add_argument("--checkpoint", type=Path, help="(runs/spark/checkpoint.pt; draft: runs/spark_draft/...)")
    parser.add_argument("--out", type=Path, help="(src/twostroke/assets/spark; draft: .../spark_draft)")
    options = parser.parse_args()
    name = "spark_draft" if options.draft else "spark"
    checkpoint: Path = options.checkpoint or RUNS / name / "checkpoint.pt"
    out: Path = options.out or ASSETS / name

    config, weights, progress = load_average(checkpoint)
    export(config, weights, DEFAULT_PATH, out)
    figures = json.loads(HELD_OUT_JSON.read_text()) if HELD_OUT_JSON.exists() else None
    parameters = sum(tensor.numel() for tensor in weights.values())
    text = card(load(), config, parameters, progress, figures, draft=options.draft)
    (out / "README.md").write_text(text, encoding="utf-8")
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"{parameters:,} parameters, {size / 1e6:.2f} MB -> {out}")


if __name__ == "__main__":
    main()
