"""Trains Medusa heads or an EAGLE layer to guess spark's next tokens, on spark's own probabilities.

    python -m tools.spark.train_heads medusa        12 minutes on one core -> src/twostroke/assets/spark_medusa
    python -m tools.spark.train_heads eagle         8 minutes -> src/twostroke/assets/spark_eagle
"""

import argparse
import json
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tools.spark.corpus import load
from tools.spark.data import Batch, Dialogues
from tools.spark.evaluate import ASSETS
from tools.spark.heads import EAGLE, Eagle, Medusa, MedusaConfig
from tools.spark.loss import reuse_memory
from tools.spark.model import SPARK, Llama
from tools.spark.tokenizer import DEFAULT_PATH
from torch import Tensor

ROWS = 768
"""The most rows of a batch. It is limited because the product with the output matrix takes most of a step."""
AVERAGE = 0.995
Heads = Medusa | Eagle


def spark_model(folder: Path) -> Llama:
    """Returns spark with the shipped weights in float32."""
    model = Llama(SPARK)
    model.load_state_dict({name: tensor.float() for name, tensor in load_file(folder / "model.safetensors").items()})
    return model.requires_grad_(False).eval()


def losses(heads: Heads, model: Llama, batch: Batch) -> tuple[list[Tensor], list[float]]:
    """Returns for each head or round the cross entropy against spark's probabilities, and the share of positions at
    which both prefer the same token."""
    width = batch.ids.shape[1]
    rows = batch.index[batch.weight == 1.0]
    rows = rows[torch.randperm(len(rows))[:ROWS]]
    with torch.no_grad():
        hidden = model.hidden(batch.ids)
        logits = model.logits(hidden.flatten(0, 1)[rows]).float()
        wanted = torch.softmax(logits, -1)
    found: list[Tensor] = []
    shares: list[float] = []
    for place, states in enumerate(heads(hidden, batch.ids)):
        behind = 1 + place if isinstance(heads, Medusa) else 1
        inside = rows % width >= 1 + place
        guessed = model.logits(states.flatten(0, 1)[(rows - behind)[inside]]).float()
        found.append(F.cross_entropy(guessed, wanted[inside]))
        shares.append((guessed.argmax(-1) == wanted[inside].argmax(-1)).float().mean().item())
    return found, shares


def train(heads: Heads, model: Llama, minutes: float, rate: float, dialogues: Dialogues) -> dict[str, Tensor]:
    """Returns the averaged weights after `minutes` minutes. The learning rate falls linearly."""
    optimizer = torch.optim.AdamW(heads.parameters(), lr=rate, betas=(0.9, 0.98), weight_decay=0.01)
    average = {name: tensor.detach().clone() for name, tensor in heads.state_dict().items()}
    begin_s = told_s = time.perf_counter()
    for step, (_, _, batch) in enumerate(dialogues.batches(0, 0)):
        done = (time.perf_counter() - begin_s) / (60 * minutes)
        if done >= 1:
            break
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / 50) * (1.0 - done)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found, shares = losses(heads, model, batch)
        optimizer.zero_grad(set_to_none=True)
        torch.stack(found).sum().backward()
        torch.nn.utils.clip_grad_norm_(heads.parameters(), 1.0)
        optimizer.step()
        keep = min(AVERAGE, step / (step + 10))
        for name, tensor in heads.state_dict().items():
            average[name].lerp_(tensor, 1.0 - keep)
        if time.perf_counter() - told_s > 15:
            told_s = time.perf_counter()
            texts = [f"{loss.item():.3f} {share:.2f}" for loss, share in zip(found, shares, strict=True)]
            print(f"{done:5.0%}  step {step:5}  loss, agreement: {', '.join(texts)}", flush=True)
    return average


def export(heads: Heads, name: str, folder: Path, minutes: float) -> None:
    """Write the folder with the tensors and config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {key: tensor.to(torch.bfloat16).contiguous() for key, tensor in heads.tensors().items()}
    path = folder / ("medusa_lm_head.safetensors" if isinstance(heads, Medusa) else "model.safetensors")
    save_file(tensors, str(path), metadata={"format": "pt"})
    path.chmod(0o644)
    (folder / "config.json").write_text(json.dumps(heads.config_json(), indent=2) + "\n", encoding="utf-8")
    count = sum(tensor.numel() for tensor in tensors.values())
    text = (
        f"# spark-{name}\n\nGuesses the next tokens of `spark` for `--speculate {name}`: {count:,} parameters in "
        f"bfloat16,\n{minutes:g} minutes of training on one core by `python -m tools.spark.train_heads {name}`,\n"
        "on spark's own probabilities over its corpus.\n"
    )
    (folder / "README.md").write_text(text, encoding="utf-8")
    print(f"{count:,} parameters, {path.stat().st_size / 1e6:.2f} MB -> {folder}")


def main() -> None:
    """Train the heads and export them."""
    parser = argparse.ArgumentParser(description=__doc__ or "", formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("medusa", "eagle"))
    parser.add_argument("--minutes", type=float, help="time budget (medusa 12, eagle 8)")
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    minutes = options.minutes or (12 if options.kind == "medusa" else 8)
    reuse_memory()
    model = spark_model(ASSETS / "spark")
    heads: Heads
    if options.kind == "medusa":
        heads = Medusa(MedusaConfig(), SPARK.hidden_size)
    else:
        heads = Eagle(EAGLE, model.model.embed_tokens.weight)
    tokenizer = Tokenizer.from_file(str(DEFAULT_PATH))
    dialogues = Dialogues(load(), tokenizer, seed=7, batch_tokens=4096, short_share=0.1)
    heads.load_state_dict(train(heads, model, minutes, options.lr, dialogues))
    export(heads, options.kind, options.out or ASSETS / f"spark_{options.kind}", minutes)


if __name__ == "__main__":
    main()
