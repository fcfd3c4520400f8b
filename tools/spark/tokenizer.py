"""The byte-level BPE tokenizer of spark and its chat template."""

import argparse
import json
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from tools.spark.corpus import Entry, load

VOCAB_SIZE = 4096
BOS, SYSTEM, USER, ASSISTANT, END, PAD = (
    "<|bos|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|end|>",
    "<|pad|>",
)
SPECIAL_TOKENS = [BOS, SYSTEM, USER, ASSISTANT, END, PAD]
MAX_POSITIONS = 2048

CHAT_TEMPLATE = (
    "{{- '<|bos|>' -}}"
    "{%- for message in messages -%}"
    "{{- '<|' + message['role'] + '|>\\n' + message['content'] + '<|end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}"
)

DEFAULT_SYSTEM = "You are spark, a small model that explains LLM inference."
DEFAULT_PATH = Path(__file__).resolve().parent / "tokenizer.json"


def training_lines(entries: list[Entry], extra: list[str]) -> list[str]:
    """Returns the text that the merges are learnt from: questions and answers as written and in lower case, and
    `extra`.

    Answers count four times, so that the model's answers need few tokens; held-out lines are left out.
    """
    lines: list[str] = list(extra)
    for entry in entries:
        for question in entry.questions:
            lines += [question, question.lower()]
        lines += [entry.answer] * 4
    return lines


def train(entries: list[Entry], extra: list[str] | None = None) -> Tokenizer:
    """Learn a tokenizer of exactly VOCAB_SIZE ids. When the corpus is too small, reserved tokens fill the rest."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        min_frequency=2,
        special_tokens=SPECIAL_TOKENS,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(training_lines(entries, extra or []), trainer)
    missing = VOCAB_SIZE - tokenizer.get_vocab_size()
    # The model's last ids must mean something to a decoder even where the corpus ran out of merges.
    tokenizer.add_special_tokens([AddedToken(f"<|reserved_{i}|>", special=True) for i in range(missing)])
    return tokenizer


def token_id(tokenizer: Tokenizer, token: str) -> int:
    """Returns the id of `token`. Raises KeyError when the tokenizer lacks it."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise KeyError(token)
    return int(found)


def render_chat(messages: list[dict[str, str]], *, add_generation_prompt: bool) -> str:
    """Returns the text that CHAT_TEMPLATE gives for `messages` (each with `role` and `content`), without a Jinja
    engine."""
    parts = [BOS] + [f"<|{message['role']}|>\n{message['content']}{END}\n" for message in messages]
    return "".join(parts) + (f"{ASSISTANT}\n" if add_generation_prompt else "")


def tokenizer_config() -> dict[str, Any]:
    """Returns the content of tokenizer_config.json. The template writes the BOS itself, so the tokenizer adds none."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": END,
        "pad_token": PAD,
        "additional_special_tokens": [SYSTEM, USER, ASSISTANT],
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_POSITIONS,
        "chat_template": CHAT_TEMPLATE,
    }


def save_folder(tokenizer_json: str, folder: Path) -> None:
    """Write tokenizer.json (compact), tokenizer_config.json and chat_template.jinja into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    compact = json.dumps(json.loads(tokenizer_json), ensure_ascii=False, separators=(",", ":"))
    (folder / "tokenizer.json").write_text(compact + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer_config(), indent=2) + "\n", encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")


def main() -> None:
    """Train the tokenizer on the corpus and write it to `--out`."""
    parser = argparse.ArgumentParser(
        description="Example: python -m tools.spark.tokenizer\n\n" + (main.__doc__ or ""),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=DEFAULT_PATH)
    options = parser.parse_args()
    from tools.spark.augment import vocabulary_lines  # the augmenter's words deserve tokens too

    entries = load()
    tokenizer = train(entries, vocabulary_lines())
    options.out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(options.out), pretty=False)
    lengths = [len(tokenizer.encode(entry.answer).ids) for entry in entries]
    print(
        f"{tokenizer.get_vocab_size()} tokens; answers: {sum(lengths) / len(lengths):.1f} tokens on average, "
        f"{max(lengths)} at most -> {options.out}"
    )


if __name__ == "__main__":
    main()
