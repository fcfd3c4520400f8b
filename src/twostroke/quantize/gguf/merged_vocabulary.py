"""Makes the GGUF keys of a tokenizer that merges characters and writes unknown ones as bytes, as SentencePiece does.

Llama 2, Mistral, Phi 3 and Gemma have such tokenizers. GGUF has two kinds for them: `llama`, in which the score of a
piece decides when it is merged, and `gemma4`, which lists merges. The result is read back and compared with the
original. The content of tokenizer.json is called `said`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from twostroke.assets import calibration_text
from twostroke.quantize.gguf.check import as_read
from twostroke.quantize.gguf.container import KeyValue
from twostroke.quantize.gguf.encoder_vocabulary import listed, refused
from twostroke.text.tokenizer_file import built
from twostroke.weights.gguf.vocabulary.token_list import BYTE, NORMAL, PREFIX, SPACE, UNKNOWN, USER_DEFINED, TokenList
from twostroke.weights.gguf.vocabulary.tokenizer import as_json, tokenizer_json

if TYPE_CHECKING:
    import tokenizers

BYTE_TOKEN = re.compile("<0x[0-9A-F]{2}>")
WHOLE = "tokenizer.huggingface.json"
PIECES_OF_TEXT = 512
"""To compare tokenizers, the vocabulary is turned into texts; this is the number of pieces in each."""
MARKS = 64
"""Two tokenizers are compared on texts around added tokens. Such texts are made for this many of the first added
tokens, and for as many of the last ones."""
NEWLINE = "\n"
ODD = "a\x00\x01\x7f é e\u0301 \u200d\U0001f9d1\u200d\U0001f680 \ue000  \t \r\n   x  "
"""A text on which two tokenizers are compared: it has control characters, composed and rare characters, and runs of
blanks."""


def merged_keys(said: Mapping[str, Any], vocab_size: int) -> dict[str, KeyValue]:
    """Returns the GGUF keys of a tokenizer of the kind `llama`. said: the content of tokenizer.json. Raises
    UnsupportedModel for a normalizer or a pre-tokenizer that GGUF cannot describe."""
    model = said["model"]
    prefix = _adds_space(said)
    merges = [_pair(each) for each in model["merges"]]
    order = {text: place for place, text in enumerate(dict.fromkeys(left + right for left, right in merges))}
    tokens, types = listed(model["vocab"], said, vocab_size)
    for token in said.get("added_tokens", ()):
        if token["id"] < vocab_size and SPACE in token["content"]:
            _put_spaced(token, order, tokens, types)
    for text, index in model["vocab"].items():
        if BYTE_TOKEN.fullmatch(text) and index < vocab_size:
            types[index] = BYTE
    unknown = model["vocab"].get(model.get("unk_token"))
    if unknown is not None and unknown < vocab_size:
        types[unknown] = UNKNOWN
    scores = [-float(order.get(text, len(order))) for text in tokens]
    return {
        PREFIX + "model": "llama",
        PREFIX + "pre": "default",
        PREFIX + "tokens": tokens,
        PREFIX + "token_type": types,
        PREFIX + "scores": scores,
        PREFIX + "add_space_prefix": prefix,
        **({} if unknown is None else {PREFIX + "unknown_token_id": int(unknown)}),
    }


def checked_keys(
    original: tokenizers.Tokenizer, said: Mapping[str, Any], keys: dict[str, KeyValue]
) -> dict[str, KeyValue]:
    """Returns GGUF keys that give the same tokens as the original tokenizer: those of the kind `llama`, or else those
    of the kind `gemma4`. said: the content of tokenizer.json. keys: the keys of the kind `llama`.

    The keys must give the same tokens for plain texts; otherwise UnsupportedModel is raised. Where they differ in texts
    with special tokens or in decoding, tokenizer.json itself becomes one more key. This engine reads that key;
    llama.cpp reads the others.
    """
    marks = _marks(said, keys)
    ids_of_marks = frozenset(marks.values())
    texts, marked = [*_texts(said, marks), ODD], [ODD, *_marked(list(marks))]
    wrong = ""
    for kind in (keys, *_listing_merges(said, keys)):
        found = built(as_json(tokenizer_json(_read_back(kind))).encode())
        others = _differing(original, found, texts, special=False)
        plain = [text for text, ids in others if ids_of_marks.isdisjoint(ids)]
        if not plain:
            around = _differing(original, found, marked, special=True)
            return {**kind, WHOLE: as_json(said)} if others or around else kind
        wrong = wrong or plain[0]
    raise refused(f"The tokens of a text would differ from those of tokenizer.json: {wrong[:40]!r}.")


def _differing(
    original: tokenizers.Tokenizer, found: tokenizers.Tokenizer, texts: list[str], *, special: bool
) -> list[tuple[str, list[int]]]:
    """Returns the texts for which the two tokenizers make different tokens, each with the original's tokens. special:
    also adds the special tokens around each text, and returns texts whose tokens decode differently."""
    pairs = (each.encode_batch(texts, add_special_tokens=special) for each in (original, found))
    differing = []
    for text, one, two in zip(texts, *pairs, strict=True):
        said = [each.decode(one.ids, skip_special_tokens=False) for each in (original, found) if special]
        if one.ids != two.ids or len(set(said)) > 1:
            differing.append((text, one.ids))
    return differing


def _adds_space(said: Mapping[str, Any]) -> bool:
    """Returns whether a space is put before a text. Raises UnsupportedModel for steps that GGUF cannot describe."""
    prefix = False
    for step in _steps(said.get("normalizer"), "normalizers"):
        if step.get("type") == "Prepend" and step.get("prepend") == SPACE:
            prefix = True
        elif step.get("type") != "Replace" or step.get("pattern") != {"String": " "} or step.get("content") != SPACE:
            raise refused(f"Its normalizer {str(step.get('type'))[:40]} has no name in GGUF.")
    for step in _steps(said.get("pre_tokenizer"), "pretokenizers"):
        if step.get("type") == "Metaspace" and step.get("replacement") == SPACE:
            prefix = prefix or step.get("prepend_scheme", "always") != "never"
        elif step.get("type") != "Split" or step.get("pattern") != {"String": " "}:
            raise refused(f"Its pre-tokenizer {str(step.get('type'))[:40]} has no name in GGUF.")
    return prefix


def _steps(found: Any, members: str) -> Sequence[Mapping[str, Any]]:
    if not isinstance(found, dict):
        return ()
    return tuple(found.get(members, ())) if found.get("type") == "Sequence" else (found,)


def _pair(merge: str | Sequence[str]) -> tuple[str, str]:
    left, _, right = merge.partition(" ") if isinstance(merge, str) else (merge[0], "", merge[1])
    return left, right


def _put_spaced(token: Mapping[str, Any], order: Mapping[str, int], tokens: list[str], types: list[int]) -> None:
    """Puts an added token that contains U+2581 into the lists. Where texts are normalized before added tokens are
    searched, the token is an added token of the file, written with spaces. Otherwise text with spaces gets the token by
    merges, so its type is that of plain text."""
    index, text = token["id"], token["content"]
    if token["normalized"]:
        tokens[index], types[index] = text.replace(SPACE, " "), USER_DEFINED
    elif text in order:
        types[index] = NORMAL


def _listing_merges(said: Mapping[str, Any], keys: Mapping[str, KeyValue]) -> Iterator[dict[str, KeyValue]]:
    """Yields the GGUF keys of the same tokenizer as the kind `gemma4`, which has merges in place of scores. Yields
    nothing for a tokenizer that puts a space before a text, because `gemma4` puts none. said: the content of
    tokenizer.json. keys: the keys of the kind `llama`."""
    if keys[PREFIX + "add_space_prefix"]:
        return
    left_out = {PREFIX + name for name in ("scores", "pre", "add_space_prefix")}
    merges = [" ".join(_pair(each)) for each in said["model"]["merges"]]
    kept = {name: value for name, value in keys.items() if name not in left_out}
    yield {**kept, PREFIX + "model": "gemma4", PREFIX + "merges": merges}


def _read_back(keys: Mapping[str, KeyValue]) -> TokenList:
    return TokenList.read({name: as_read(value) for name, value in keys.items()}, "The file")


def _marks(said: Mapping[str, Any], keys: Mapping[str, KeyValue]) -> dict[str, int]:
    """Returns the ids of the added tokens by their texts. A tokenizer finds added tokens before it splits a text. The
    unknown token is included, because a GGUF file makes it an added token."""
    found = {token["content"]: token["id"] for token in said.get("added_tokens", ())}
    unknown = said["model"].get("unk_token")
    if unknown in said["model"]["vocab"]:
        found[unknown] = said["model"]["vocab"][unknown]
    types = keys[PREFIX + "token_type"]
    size = len(types) if isinstance(types, Sequence) else 0
    return {text: index for text, index in found.items() if index < size}


def _texts(said: Mapping[str, Any], marks: Collection[str]) -> Iterator[str]:
    """Yields the plain texts on which the written tokenizer is compared with the original: each line of the calibration
    text, and texts of PIECES_OF_TEXT pieces of the vocabulary each. No text begins with a space, because only some
    tokenizers put another space before it."""
    for line in calibration_text().split(NEWLINE):
        yield line.lstrip()
    pieces = [piece.replace(SPACE, " ") for piece in said["model"]["vocab"] if piece not in marks]
    for number, at in enumerate(range(0, len(pieces), PIECES_OF_TEXT)):
        yield ("", " ")[number % 2].join(pieces[at : at + PIECES_OF_TEXT]).lstrip()


def _marked(marks: Sequence[str]) -> Iterator[str]:
    """Yields the texts that test added tokens: at both ends and inside, with and without blanks around. It also yields
    texts that begin with spaces."""
    yield from (" a", "  b c")
    for mark in dict.fromkeys([*marks[:MARKS], *marks[-MARKS:]]):
        yield f"{mark}a {mark} b{mark}\n c x{mark}y  {mark}"
