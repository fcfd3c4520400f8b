"""Trains spark or its draft on the corpus, in bfloat16 autocast on the CPU; stops and resumes at any time."""

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tools.spark.corpus import load
from tools.spark.data import Batch, Dialogues
from tools.spark.loss import HeadLoss, reuse_memory
from tools.spark.model import SPARK, SPARK_DRAFT, Llama, ModelConfig, count_parameters
from tools.spark.tokenizer import DEFAULT_PATH
from torch import Tensor

LONGEST_STEP = 5.0  # seconds; what a step takes beyond this (a paused process, a laptop asleep) is not training
RUNS = Path(__file__).resolve().parent / "runs"


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a training run."""

    minutes: float
    lr: float
    dropout: float
    batch_tokens: int
    warmup_steps: int = 100
    final_lr_share: float = 0.02
    weight_decay: float = 0.1
    clip: float = 1.0
    average_decay: float = 0.998


@dataclass
class Progress:
    """How far a run is. `seconds`: training time over all sittings. `round`, `index`: the next batch."""

    step: int = 0
    seconds: float = 0.0
    round: int = 0
    index: int = 0


def learning_rate(recipe: Recipe, progress: Progress) -> float:
    """Returns the learning rate: a warm-up by steps, then a linear decay over the time budget. So the run ends with the
    lowest rate on any machine."""
    warm = min(1.0, (progress.step + 1) / recipe.warmup_steps)
    done = min(1.0, progress.seconds / (recipe.minutes * 60))
    return recipe.lr * warm * max(recipe.final_lr_share, 1.0 - done)


class Trainer:
    """A model with the moving average of its weights and its optimizer."""

    def __init__(self, config: ModelConfig, recipe: Recipe, seed: int) -> None:
        torch.manual_seed(seed)
        self.config, self.recipe, self.seed = config, recipe, seed
        self.model = Llama(config, recipe.dropout)
        self.average = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.lr, betas=(0.9, 0.98), eps=1e-9, fused=True)
        self.progress = Progress()
        self.hidden: Callable[[Tensor], Tensor] = self.model.hidden

    def step(self, batch: Batch) -> tuple[float, float]:
        """One update. Returns (mean loss, share of tokens given p > 1/2) over the answer positions."""
        torch.manual_seed(self.seed * 1_000_003 + self.progress.step)  # dropout, the same after a resume
        rate = learning_rate(self.recipe, self.progress)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self.hidden(batch.ids)
        rows = hidden.flatten(0, 1).index_select(0, batch.index)
        head = self.model.model.embed_tokens.weight
        loss, losses = HeadLoss.apply(rows, head, batch.target, batch.weight / batch.weight.sum())
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.progress.step += 1
        self._update_average()
        answer = batch.weight == 1.0
        return losses[answer].mean().item(), (losses[answer] < 0.693).float().mean().item()

    def _update_average(self) -> None:
        """Update the exponential moving average of the weights. It is short at first, so that early checkpoints are
        useful."""
        decay = min(self.recipe.average_decay, self.progress.step / (self.progress.step + 10))
        current = self.model.state_dict()
        names = list(self.average)
        torch._foreach_lerp_([self.average[n] for n in names], [current[n] for n in names], 1.0 - decay)

    def save(self, path: Path) -> None:
        """Write a checkpoint. The old file stays until the new one is complete."""
        state: dict[str, Any] = {
            "config": self.config.to_dict(),
            "model": self.model.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "progress": vars(self.progress),
            "seed": self.seed,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        torch.save(state, part)
        os.replace(part, path)

    def resume(self, path: Path) -> None:
        """Load a checkpoint to go on from it. Raises ValueError when its shape or seed is another."""
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["config"] != self.config.to_dict() or state["seed"] != self.seed:
            raise ValueError(f"{path} is of another model or seed; use --fresh or another --name")
        self.model.load_state_dict(state["model"])
        self.average = state["average"]
        self.optimizer.load_state_dict(state["optimizer"])
        self.progress = Progress(**state["progress"])


def load_average(path: Path) -> tuple[ModelConfig, dict[str, Tensor], Progress]:
    """Returns the shape, the averaged float32 weights and the progress of a checkpoint, for export."""
    state = torch.load(path, map_location="cpu", weights_only=True)
    return ModelConfig(**state["config"]), state["average"], Progress(**state["progress"])


def run(trainer: Trainer, dialogues: Dialogues, checkpoint: Path, save_seconds: float) -> None:
    """Train until the time budget is spent, saving every `save_seconds`."""
    progress, budget = trainer.progress, trainer.recipe.minutes * 60
    since_save = since_print = time.perf_counter()
    tokens = steps = 0
    loss_sum = hit_sum = 0.0
    last = time.perf_counter()
    for number, index, batch in dialogues.batches(progress.round, progress.index):
        if progress.seconds >= budget:
            break
        loss, hits = trainer.step(batch)
        progress.round, progress.index = number, index + 1
        now = time.perf_counter()
        progress.seconds += min(now - last, LONGEST_STEP)
        last = now
        tokens, steps = tokens + batch.ids.numel(), steps + 1
        loss_sum, hit_sum = loss_sum + loss, hit_sum + hits
        if now - since_print > 10:
            print(
                f"{progress.seconds / 60:6.1f} min  step {progress.step:6d}  round {number:4d}  "
                f"loss {loss_sum / steps:.4f}  hits {hit_sum / steps:.4f}  {tokens / (now - since_print):,.0f} tok/s  "
                f"lr {learning_rate(trainer.recipe, progress):.2e}",
                flush=True,
            )
            since_print, tokens, steps, loss_sum, hit_sum = now, 0, 0, 0.0, 0.0
        if now - since_save > save_seconds:
            trainer.save(checkpoint)
            since_save = now
    trainer.save(checkpoint)
    print(f"done: {progress.step} steps, {progress.seconds / 60:.1f} min -> {checkpoint}", flush=True)


def main() -> None:
    """Train a model into runs/NAME/checkpoint.pt, going on from there if it exists."""
    parser = argparse.ArgumentParser(
        description="Example: python -m tools.spark.train --minutes 35\n\n" + (main.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--draft", action="store_true", help="the small draft model instead of spark")
    parser.add_argument("--minutes", type=float, help="time budget over all sittings (35; draft 10)")
    parser.add_argument("--name", help="folder under tools/spark/runs (spark; draft: spark_draft)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fresh", action="store_true", help="ignore an existing checkpoint")
    parser.add_argument("--lr", type=float, help="peak learning rate")
    parser.add_argument("--dropout", type=float)
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--compile", action="store_true", help="torch.compile: needs g++, a minute more to start")
    parser.add_argument("--save-seconds", type=float, default=60)
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    reuse_memory()
    draft: bool = options.draft
    recipe = Recipe(
        minutes=options.minutes or (10 if draft else 35),
        lr=options.lr or (4e-3 if draft else 2e-3),
        dropout=options.dropout if options.dropout is not None else (0.0 if draft else 0.1),
        batch_tokens=options.batch_tokens,
    )
    trainer = Trainer(SPARK_DRAFT if draft else SPARK, recipe, options.seed)
    checkpoint = RUNS / (options.name or ("spark_draft" if draft else "spark")) / "checkpoint.pt"
    if checkpoint.exists() and not options.fresh:
        trainer.resume(checkpoint)
        print(f"resuming {checkpoint} at step {trainer.progress.step}")
    if options.compile:
        trainer.hidden = torch.compile(trainer.model.hidden, dynamic=True)
    entries = load()
    dialogues = Dialogues(
        entries, Tokenizer.from_file(str(DEFAULT_PATH)), seed=options.seed, batch_tokens=recipe.batch_tokens
    )
    print(f"{count_parameters(trainer.model):,} parameters, {len(entries)} entries, {recipe}", flush=True)
    run(trainer, dialogues, checkpoint, options.save_seconds)


if __name__ == "__main__":
    main()
