"""Asks an exported folder every held-out question, greedily, and reports the share of right answers."""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tools.spark.corpus import Entry, load
from tools.spark.score import Case, Score, score
from tools.spark.tokenizer import DEFAULT_SYSTEM
from transformers import AutoTokenizer, LlamaForCausalLM

ASSETS = Path(__file__).resolve().parents[2] / "src" / "twostroke" / "assets"
HELD_OUT_JSON = Path(__file__).resolve().parent / "heldout.json"
MAX_NEW_TOKENS = 160


def held_out_cases(entries: list[Entry]) -> list[Case]:
    """Returns a case for every held-out question of the corpus."""
    return [Case(question, entry.id) for entry in entries for question in entry.held_out]


def chat(question: str) -> list[dict[str, str]]:
    """Returns the messages of a one-turn chat under the default system prompt."""
    return [{"role": "system", "content": DEFAULT_SYSTEM}, {"role": "user", "content": question}]


class Folder:
    """A model folder opened with transformers, in float32."""

    def __init__(self, path: Path) -> None:
        self.tokenizer: Any = AutoTokenizer.from_pretrained(str(path))
        self.tokenizer.padding_side = "left"
        self.model: Any = LlamaForCausalLM.from_pretrained(str(path), dtype=torch.float32)
        self.model.train(False)

    def answer(self, questions: list[str], batch: int = 64) -> list[str]:
        """Returns the greedy answer to each question, without special tokens."""
        prompts = [
            self.tokenizer.apply_chat_template(chat(question), tokenize=False, add_generation_prompt=True)
            for question in questions
        ]
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        texts = [""] * len(prompts)
        for start in range(0, len(order), batch):
            rows = order[start : start + batch]
            inputs = self.tokenizer([prompts[i] for i in rows], return_tensors="pt", padding=True)
            with torch.inference_mode():
                out = self.model.generate(
                    input_ids=inputs["input_ids"],
                    attention_mask=inputs["attention_mask"],
                    max_new_tokens=MAX_NEW_TOKENS,
                    do_sample=False,
                )
            made = out[:, inputs["input_ids"].shape[1] :]
            for i, text in zip(rows, self.tokenizer.batch_decode(made, skip_special_tokens=True), strict=True):
                texts[i] = text
        return texts

    @torch.inference_mode()
    def agreement(self, questions: list[str], texts: list[str]) -> float:
        """Returns the share of the tokens of `texts` that this model would have chosen itself after the text so far.
        This is the acceptance rate of a draft under greedy speculation."""
        same = total = 0
        for question, text in zip(questions, texts, strict=True):
            prompt = self.tokenizer.apply_chat_template(chat(question), tokenize=False, add_generation_prompt=True)
            start = len(self.tokenizer(prompt)["input_ids"])
            ids = torch.tensor(self.tokenizer(prompt + text)["input_ids"])
            best = self.model(ids[None]).logits[0].argmax(-1)
            same += int((best[start - 1 : -1] == ids[start:]).sum())
            total += len(ids) - start
        return same / total


def report(result: Score) -> None:
    """Print each wrong answer and the share of right ones."""
    for verdict in result.verdicts:
        if not verdict.right:
            print(f"MISS {verdict.entry_id}: {verdict.question!r}")
            print(f"     said ({verdict.nearest_id}, {verdict.similarity:.2f}): {verdict.text[:150]!r}")
    print(f"{result.right} of {len(result.verdicts)} held-out questions answered right: {result.share:.1%}")


def main() -> int:
    """Score a model folder on the held-out questions. Exit code 1 below `--require`."""
    parser = argparse.ArgumentParser(
        description="Example: python -m tools.spark.evaluate --save\n\n" + (main.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", type=Path, nargs="?", default=ASSETS / "spark")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    parser.add_argument("--save", action="store_true", help=f"write the result to {HELD_OUT_JSON.name}")
    parser.add_argument("--draft", type=Path, help="also: how many of the tokens this folder would have chosen")
    parser.add_argument("--require", type=float, default=0.0, help="the least share that is a success")
    options = parser.parse_args()

    began = time.perf_counter()
    entries = load()
    cases = held_out_cases(entries)
    questions = [case.question for case in cases]
    texts = Folder(options.folder).answer(questions)
    result = score(cases, texts, {entry.id: entry.answer for entry in entries})
    found: dict[str, Any] = {"model": options.folder.name, **result.to_dict()}
    if options.draft:
        found["draft_agreement"] = round(Folder(options.draft).agreement(questions, texts), 4)
    if options.save:
        HELD_OUT_JSON.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        report(result)
        if options.draft:
            print(f"the draft would have chosen {found['draft_agreement']:.1%} of the tokens")
        print(f"({time.perf_counter() - began:.0f} s)")
    return 0 if result.share >= options.require else 1


if __name__ == "__main__":
    sys.exit(main())
