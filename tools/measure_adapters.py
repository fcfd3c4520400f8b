"""Measures what adapters cost a decode step of a batch: no adapters, one for all sequences, one for each sequence.

    python -m tools.measure_adapters [--shape llama-3.2-1b] [--weights int8] [--batch 8] [--rank 16]
        [--modules q_proj,v_proj] [--tokens 20] [--rounds 5] [--threads 2] [--json]

Weights and adapters are random. In turns: each round decodes `tokens` tokens of every sequence in each way. The way
without adapters is also run in an engine that has no places for adapters. The figures are medians of the seconds that
the model's calls took in a step.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.adapters.random_lora import write_random_lora
from tools.ab import by_turns, median_ratio

from twostroke.assembly.engine import build_heart, print_report
from twostroke.assembly.find import find_model
from twostroke.assembly.settings.env import read_machine
from twostroke.engine.observer import NoObserver
from twostroke.engine.sync_engine import SyncEngine
from twostroke.lab.bench.checkpoints import shape_folder, write_checkpoint
from twostroke.runner.folder import read_folder
from twostroke.types.output import Prompt
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult
from twostroke.types.sampling_params import SamplingParams

PROMPT_TOKENS = 64


class StepSeconds(NoObserver):
    """Collects the seconds of the model's calls, separately for steps in which all sequences decode and for steps that
    compute all prompts."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self.decode: list[float] = []
        self.prefill: list[float] = []

    def on_step(self, plan: Plan, result: StepResult, duration_s: float, /) -> None:
        """See Observer."""
        if plan.num_tokens == len(plan.sequences) == self._batch:
            self.decode.append(result.model_s)
        elif plan.num_tokens == self._batch * PROMPT_TOKENS:
            self.prefill.append(result.model_s)


@dataclass(frozen=True, eq=False)
class Way:
    """One way to run the batch. adapters: the name of the adapter of each sequence; None for none."""

    engine: SyncEngine
    seconds: StepSeconds
    adapters: list[str | None]

    def run(self, tokens: int, seed: int) -> tuple[float, float]:
        """Returns (median seconds of a decode step, median seconds of computing all prompts). No two prompts share
        pages."""
        self.seconds.decode.clear()
        self.seconds.prefill.clear()
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)
        prompts = [
            Prompt(
                tuple((97 * seed + 31 * place + each) % 200 + 2 for each in range(PROMPT_TOKENS)),
                params,
                cache_salt=f"{id(self)} {seed} {place}",
                adapter=name,
            )
            for place, name in enumerate(self.adapters)
        ]
        self.engine.generate(prompts)
        return median(self.seconds.decode), median(self.seconds.prefill)


def engine_of(folder: Path, asked: argparse.Namespace, adapters: dict[str, Path]) -> tuple[SyncEngine, StepSeconds]:
    """Returns an engine and the observer that records the seconds of its steps."""
    seconds = StepSeconds(asked.batch)
    options: dict[str, Any] = {"weights": asked.weights, "kv_memory": "600MB", "max_step_tokens": "512"}
    if asked.threads:
        options["threads"] = asked.threads
    heart = build_heart(find_model(str(folder), {**options, "adapter": adapters}), None, print_report, seconds)
    heart.settler.wait()
    return SyncEngine(heart.stepper), seconds


def main() -> int:
    """Run the command line. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shape", default="llama-3.2-1b")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--modules", default="q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj")
    parser.add_argument("--tokens", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", default=None)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    folder = write_checkpoint(asked.shape, shape_folder(asked.shape, read_machine().cache_folder))
    with tempfile.TemporaryDirectory() as room:
        names = [f"adapter-{place}" for place in range(asked.batch)]
        model, modules = read_folder(folder), asked.modules.split(",")
        made = {
            name: write_random_lora(Path(room) / name, model, modules, asked.rank, seed)
            for seed, name in enumerate(names)
        }
        plain, adapted = engine_of(folder, asked, {}), engine_of(folder, asked, made)
    ways = {
        "no places": Way(*plain, [None] * asked.batch),
        "none": Way(*adapted, [None] * asked.batch),
        "one for all": Way(*adapted, [names[0]] * asked.batch),
        "one for each": Way(*adapted, list(names)),
    }
    found = by_turns({name: partial(way.run, asked.tokens) for name, way in ways.items()}, asked.rounds)
    base_decode, base_prefill = zip(*found["no places"], strict=True)
    report = {}
    for name, figures in found.items():
        decode, prefill = zip(*figures, strict=True)
        report[name] = {
            "decode_ms": 1e3 * median(decode),
            "prefill_ms": 1e3 * median(prefill),
            "decode_more": median_ratio(decode, base_decode) - 1,
            "prefill_more": median_ratio(prefill, base_prefill) - 1,
        }
    if asked.json:
        print(json.dumps({"settings": vars(asked), "ways": report}, indent=2))
        return 0
    print(f"{asked.shape} {asked.weights}, batch {asked.batch}, rank {asked.rank}, {asked.modules}")
    for name, each in report.items():
        print(
            f"{name:<14} decode {each['decode_ms']:7.2f} ms ({each['decode_more']:+.1%})"
            f"   prompts {each['prefill_ms']:7.1f} ms ({each['prefill_more']:+.1%})"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
