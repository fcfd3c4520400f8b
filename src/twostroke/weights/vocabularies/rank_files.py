"""Rank files of tiktoken next to a model's weights: tiktoken.model (Kimi), qwen.tiktoken, tokenizer.model of GLM 4.

The file holds the ranks alone. The rule that splits texts is Python code in such a folder, which is never run. The name
of the class in tokenizer_config.json tells which rule it is. Sources: tokenization_kimi.py, tokenization_qwen.py and
tokenization_chatglm.py of the published models.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from twostroke.types.errors import CorruptModel, UnsupportedModel
from twostroke.weights.gguf.vocabulary.pre_splits import CASED, CONTRACTIONS, LLAMA3, QWEN2, REST, SYMBOLS
from twostroke.weights.json_file import read_bytes, read_object
from twostroke.weights.vocabularies.members import added
from twostroke.weights.vocabularies.ranks import members_of_ranks, read_ranks
from twostroke.weights.vocabularies.tokenizer_files import TokenizerFiles

MAX_BYTES = 64 << 20
NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")

_UPPER, _LOWER = (rf"[\p{{L{kind}}}\p{{Lm}}\p{{Lo}}\p{{M}}&&[^\p{{Han}}]]" for kind in ("u}\\p{Lt", "l"))
KIMI = (
    rf"[\p{{Han}}]+|{CASED}{_UPPER}*{_LOWER}+{CONTRACTIONS}?|{CASED}{_UPPER}+{_LOWER}*{CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}|{SYMBOLS}|{REST}"
)
"""The pattern of Kimi. In it, `&&` is an intersection of sets of characters."""


class RankFile(Struct, frozen=True):
    """How the tokenizer class of one published model splits texts, and which tokens its code adds after the ranks.

    reserved: the text of the `num_reserved` ids after the ranks that no file names. composed: True where texts are
    converted to NFC first.
    """

    pattern: str
    reserved: str
    num_reserved: int
    special: tuple[str, ...] = ()
    composed: bool = False


QWEN_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
CLASSES = {
    "TikTokenTokenizer": RankFile(KIMI, "<|reserved_token_{id}|>", 256),
    "QWenTokenizer": RankFile(QWEN2, "", 0, QWEN_SPECIAL, composed=True),
    "ChatGLM4Tokenizer": RankFile(LLAMA3, "", 0),
}
"""Class name -> the rule by which it splits texts."""


def read_rank_file(folder: Path, name: str) -> TokenizerFiles:
    """Reads a model's tiktoken file: byte strings of tokens and their ranks in BPE merging. Raises CorruptModel; raises
    UnsupportedModel where tokenizer_config.json names no known tokenizer class, so that the splitting is not known."""
    path = folder / "tokenizer_config.json"
    config = read_object(path) if path.is_file() else {}
    form = _form(folder, config, name)
    ranks = read_ranks(read_bytes(folder / name, MAX_BYTES), name)
    reserved = range(len(ranks), len(ranks) + form.num_reserved)
    texts = {index: (form.reserved.format(id=index), True) for index in reserved}
    texts |= {index: (text, True) for index, text in enumerate(form.special, len(ranks))}
    texts |= _listed(config, len(ranks))
    tokens = [added(index, text, special=special) for index, (text, special) in sorted(texts.items())]
    members = members_of_ranks(ranks, (form.pattern,), tokens)
    if form.composed:
        members["normalizer"] = {"type": "NFC"}
    known = {text for text, _ in texts.values()}
    special = {key: text for key in NAMES if (text := _text(config.get(key))) in known and text is not None}
    return TokenizerFiles(members, special)


def _form(folder: Path, config: Mapping[str, Any], name: str) -> RankFile:
    known = CLASSES.get(str(config.get("tokenizer_class")))
    if known is None:
        raise UnsupportedModel(
            f"{folder} has {name} but no tokenizer.json, and tokenizer_config.json names no known class for it.",
            why=f"The file does not tell how texts are split. Known classes: {', '.join(CLASSES)}.",
            fix="Convert it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) with transformers.",
        )
    return known


def _listed(config: Mapping[str, Any], num_ranks: int) -> dict[int, tuple[str, bool]]:
    """Returns the added tokens of tokenizer_config.json: id -> (text, whether it is special)."""
    said = config.get("added_tokens_decoder")
    if not isinstance(said, dict):
        return {}
    found: dict[int, tuple[str, bool]] = {}
    for index, token in said.items():
        text = _text(token)
        if not index.isdecimal() or int(index) < num_ranks or not text:
            raise CorruptModel(
                "tokenizer_config.json has an added token without a text, or with the id of a rank.",
                fix="Download the model again.",
            )
        found[int(index)] = (text, not isinstance(token, dict) or token.get("special") is not False)
    return found


def _text(token: Any) -> str | None:
    found = token.get("content") if isinstance(token, dict) else token
    return found if isinstance(found, str) else None
