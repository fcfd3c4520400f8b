"""Measures how the error of weights, K and V grows with the position in a long text.

    python -m tools.errors.measure_long_contexts FOLDER --tokens 8000 [--json] \\
        --settings f32:bf16 f32:int8 int8:bf16 int8:int8

The truth is the same checkpoint with float32 weights, K and V. A setting is a format of weights and one of K and V. The
error is that of docs/quantization.md: |log p - log p(float32)| of the likeliest tokens, weighted by float32's
probability. The text is the language reference that Python ships, or --text FILE. No clock is read, so the machine may
be busy.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from itertools import pairwise
from math import exp
from pathlib import Path
from pydoc_data.topics import topics
from statistics import fmean

from twostroke import LLM, SamplingParams
from twostroke.lab.bench.fidelity import TINY, TOP
from twostroke.types.output import Prompt

EDGES = (0, 512, 2048, 4096, 6144, 8192, 12288, 16384)
"""The positions at which a band of the table begins."""
LEAST_CHARACTERS = 4000
"""Topics with fewer characters are lists more than text."""
CHARACTERS = 8
"""More characters than any token of natural text has on average."""
EXACT = "f32:f32"
Likeliest = dict[int, float]
"""The log probabilities of the likeliest tokens of a position, by token id."""


def own_text() -> str:
    """Returns the topics of Python's language reference, one after the other."""
    return "\n\n".join(text for _, text in sorted(topics.items()) if len(text) > LEAST_CHARACTERS)


def heard(folder: Path, setting: str, text: str, tokens: int, threads: int) -> list[Likeliest]:
    """Returns what a setting gives for each token of the text after the first."""
    weights, kv_format = setting.split(":")
    with LLM(str(folder), weights=weights, kv_format=kv_format, context=tokens + 16, threads=threads) as llm:
        ids = tuple(llm.tokenizer.encode_prompt(text[: tokens * CHARACTERS])[:tokens])
        asked = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=TOP)
        output = llm.engine.generate([Prompt(ids, asked)])[0]
    return [dict(each.top) for each in output.prompt_logprobs or ()]


def error(exact: Likeliest, found: Likeliest) -> float:
    """Returns the error of a position over the tokens that both lists contain."""
    both = exact.keys() & found.keys()
    weight = sum(exp(exact[token]) for token in both)
    return sum(exp(exact[token]) * abs(exact[token] - found[token]) for token in both) / max(TINY, weight)


def bands(truth: Sequence[Likeliest], found: Sequence[Likeliest]) -> list[dict[str, float]]:
    """Returns the mean error and the share of same best tokens of each band of positions."""
    edges = [edge for edge in EDGES if edge < len(truth)] + [len(truth)]
    made = []
    for first, end in pairwise(edges):
        pairs = list(zip(truth[first:end], found[first:end], strict=True))
        same = fmean(max(a, key=a.__getitem__) == max(b, key=b.__getitem__) for a, b in pairs)
        made.append({"first": first, "end": end, "error": fmean(error(a, b) for a, b in pairs), "same": same})
    return made


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tokens", type=int, default=8000)
    parser.add_argument("--settings", nargs="+", default=("f32:bf16", "f32:int8", "int8:bf16", "int8:int8"))
    parser.add_argument("--text", type=Path, help="a text [default: Python's language reference]")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    text = own_text() if asked.text is None else asked.text.read_text()
    truth = heard(asked.folder, EXACT, text, asked.tokens, asked.threads)
    found = {}
    for setting in asked.settings:
        found[setting] = bands(truth, heard(asked.folder, setting, text, asked.tokens, asked.threads))
        if not asked.json:
            cells = (f"{band['error']:.4f} ({band['same']:.1%})" for band in found[setting])
            print(f"| {setting.replace(':', ' | ')} | {' | '.join(cells)} |", flush=True)
    if asked.json:
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
