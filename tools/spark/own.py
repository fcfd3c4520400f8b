"""Asks Twostroke itself every held-out question, at each weight format, to see what users get and what it costs."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tools.spark.corpus import load
from tools.spark.evaluate import MAX_NEW_TOKENS, chat, held_out_cases
from tools.spark.score import score

from twostroke import LLM, SamplingParams

FORMATS = ("f32", "bf16", "int8", "int4")


def answers(folder: str, weights: str, questions: list[str]) -> list[str]:
    """Returns the greedy answer to each question with one weight format."""
    params = SamplingParams(temperature=0.0, max_tokens=MAX_NEW_TOKENS)
    with LLM(folder, weights=weights, cache="off", kv_memory="200MB") as llm:
        prompts = [llm.messages_tokens(chat(question)) for question in questions]
        return [made.completions[0].text for made in llm.generate(prompts, params)]


def main() -> int:
    """Score a folder on the held-out questions with our own engine. Exit code 1 below `--require`."""
    parser = argparse.ArgumentParser(
        description="Example: python -m tools.spark.own --weights int8,int4\n\n" + (main.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", default="spark", help="a model folder (the embedded model)")
    parser.add_argument("--weights", default=",".join(FORMATS), help="formats, with commas between")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--require", type=float, default=0.0, help="the least share that is a success")
    options = parser.parse_args()
    entries = load()
    cases = held_out_cases(entries)
    right: dict[str, Any] = {}
    first: list[str] = []
    for weights in options.weights.split(","):
        texts = answers(options.folder, weights, [case.question for case in cases])
        result = score(cases, texts, {entry.id: entry.answer for entry in entries})
        first = first or texts
        same = sum(text == other for text, other in zip(texts, first, strict=True))
        found = {"right": result.right, "cases": len(cases), "share": round(result.share, 4), "same_as_first": same}
        right[weights] = found
        if not options.json:
            print(f"{weights}: {result.right} of {len(cases)} held-out questions right: {result.share:.1%}", end="")
            print(f" ({same} answers word for word as with {next(iter(right))})", flush=True)
    if options.json:
        print(json.dumps({"model": Path(options.folder).name, "weights": right}, indent=1))
    return 0 if min(found["share"] for found in right.values()) >= options.require else 1


if __name__ == "__main__":
    sys.exit(main())
