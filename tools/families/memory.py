"""Compares the memory that an engine holds for one file with the memory that `plan` predicts: the arena of a step, the
caches, and the pages before windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from twostroke.llm import LLM
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

NEW_TOKENS = 4


def held_bytes() -> dict[str, int]:
    """Returns this process's resident bytes: its own (RssAnon), those of mapped files (RssFile) and the peak (VmHWM).
    """
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line)
    return {name: 1024 * int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "VmHWM")}


def held_and_planned(file: Path, threads: int, context: int, sequences: int) -> dict[str, Any]:
    """Run `sequences` prompts of `context` tokens together, and compare the memory held with the memory planned."""
    settings: dict[str, Any] = {"threads": threads, "context": context + 2 * NEW_TOKENS, "max_sequences": sequences}
    with LLM(str(file), **settings) as llm:
        llm.settle()
        planned = {
            setting.name: setting.value for setting in llm.resolved.settings if str(setting.name).endswith("_bytes")
        }
        planned["kv_memory"] = llm.resolved.cache.kv_memory
        before = held_bytes()
        pages = _run(llm, context, sequences)
        memory = llm._built.memory
        caches = sum(layer.data.nbytes for layer in memory.layers) + memory._states.nbytes
        return {
            "planned": planned,
            "arena_bytes": int(memory._arena.nbytes),
            "cache_bytes": int(caches),
            "resident_before": before,
            "resident_after": held_bytes(),
            "window_pages": pages,
        }


def _run(llm: LLM, context: int, sequences: int) -> list[dict[str, int]]:
    """Run the prompts. Returns for each page group its window, the most pages that sequences held at once, and the most
    that they may hold."""
    groups = llm._built.cache.groups
    most = [0] * len(groups)
    params = SamplingParams(temperature=0.0, max_tokens=NEW_TOKENS, ignore_eos=True)
    prompts = [
        Prompt(tuple((7919 * index + 131 * number) % llm.vocab_size for index in range(context)), params)
        for number in range(sequences)
    ]
    for _ in llm.engine.stream(prompts):
        for index, group in enumerate(groups):
            most[index] = max(most[index], group.num_pages - group.pages_left)
    return [
        {"window": group.window, "held": held, "allowed": sequences * min(group.most_held, group.num_pages)}
        for group, held in zip(groups, most, strict=True)
    ]
