"""Writes the model cards of spark and its draft."""

from typing import Any

from tools.spark.corpus import Entry
from tools.spark.model import ModelConfig
from tools.spark.train import Progress

_HEAD = """---
language: en
library_name: transformers
---
"""

_SPARK = """# spark

A {millions:.1f}-million-parameter Llama that explains LLM inference. It ships inside Twostroke so that the engine has a
model to serve on a fresh machine with no download. `tools/spark/` in the same repository trained it from nothing.

## What it is

{shape}
- Data: {entries} answers about LLM inference and about Twostroke, written for this project, with {questions} phrasings
  of their questions, and machine-made variations of those phrasings (typos, synonyms, lost words, other openings).
- Chat format: `<|bos|>`, then `<|role|>\\n...<|end|>\\n` for each message. Default system prompt:
  "You are spark, a small model that explains LLM inference."
- Training: {minutes:.0f} minutes on 2 CPU cores, {steps} steps, bfloat16 autocast.

## How well it answers

{score}

Right means: the greedy answer, lower-cased and with punctuation dropped, equals the reference answer; or its words
are at least 0.9 similar (difflib ratio) to the reference and no other answer is nearer. The held-out phrasings were
never trained on, in any variation. They ask for answers that were trained on: the score measures understanding of
new wordings, not new knowledge. Where the score was low during development, train phrasings were added, so the
figure is that of a test set that has been looked at.

## What it is not

- It is not a general model. It knows the answers of its corpus and nothing else, and repeats them nearly word for word.
- Off its corpus it does not stay silent: it gives the answer of some other question, fluently and wrongly.
- It does not reason, calculate or follow instructions, and hardly uses what was said before in a chat.
- Its figures are the corpus's. Check them before you buy hardware.
"""

_DRAFT = """# spark-draft

A {millions:.1f}-million-parameter Llama with spark's tokenizer, trained on the same text. It is there to propose tokens
that spark then checks (speculative decoding), and for nothing else: alone it answers worse than spark.

{shape}
- Data: the same {entries} answers and {questions} phrasings as spark's; see spark's card, also for the limits.
- Training: {minutes:.0f} minutes on 2 CPU cores, {steps} steps, bfloat16 autocast.
{agreement}"""


def _shape(config: ModelConfig, parameters: int) -> str:
    return (
        f"- Shape: LlamaForCausalLM, {config.num_hidden_layers} layers, hidden {config.hidden_size}, "
        f"{config.num_attention_heads} heads, {config.num_key_value_heads} KV heads of {config.head_dim}, feed-forward "
        f"{config.intermediate_size},\n  vocabulary {config.vocab_size} (byte-level BPE), tied embeddings, "
        f"{config.max_position_embeddings} positions (trained to about 1,000);\n"
        f"  {parameters:,} parameters, {2 * parameters / 1e6:.1f} MB in bfloat16."
    )


def card(
    entries: list[Entry],
    config: ModelConfig,
    parameters: int,
    progress: Progress,
    figures: dict[str, Any] | None,
    *,
    draft: bool,
) -> str:
    """Returns the text of README.md. figures: the content of heldout.json, or None when nothing was measured yet."""
    score, agreement = "Not measured yet.", ""
    if figures:
        score = (
            f"{figures['right']} of {figures['cases']} held-out phrasings get the right answer: {figures['share']:.1%} "
            "(`python -m tools.spark.evaluate`)."
        )
        if "draft_agreement" in figures:
            agreement = (
                f"- Shown spark's answers to the held-out questions token by token, it would have chosen "
                f"{figures['draft_agreement']:.1%} of the\n  tokens itself.\n"
            )
    return _HEAD + (_DRAFT if draft else _SPARK).format(
        millions=parameters / 1e6,
        shape=_shape(config, parameters),
        entries=len(entries),
        questions=f"{sum(len(entry.questions) for entry in entries):,}",
        minutes=progress.seconds / 60,
        steps=f"{progress.step:,}",
        score=score,
        agreement=agreement,
    )
