"""The tokenizer `rwkv` of a GGUF file: at each place of a text it takes the longest token that begins there.

Tokens are strings of bytes, written as Python writes them. tokenizer.json has no such model. The same result comes from
a split of the text's bytes with a pattern of all tokens, longer ones first, and a list of whole words. Source:
llama-vocab.cpp of llama.cpp.
"""

from __future__ import annotations

import re
from typing import Any

from twostroke.weights.gguf.header import corrupt
from twostroke.weights.gguf.vocabulary.post_processors import around
from twostroke.weights.gguf.vocabulary.token_list import CONTROL, NORMAL, USER_DEFINED, TokenList

LONGEST = 512
"""The most bytes of a token that is read: the regular expression of all tokens may nest one group for each byte."""
_ESCAPED = re.compile(r"\\(x[0-9a-f]{2}|.)", re.DOTALL)
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r"}

Node = dict[str, Any]
"""A place in the tree of all tokens: the next character -> the place after it; the key "" marks the end of a token."""


def greedy(vocabulary: TokenList) -> dict[str, Any]:
    """Returns the members of tokenizer.json for `rwkv`. A token of text that is written like a control token is left
    out: two ids cannot have one text. Raises CorruptModel."""
    vocab: dict[str, int] = {}
    control: dict[str, int] = {}
    for index, text in enumerate(vocabulary.tokens):
        if vocabulary.types[index] == CONTROL and text:
            control.setdefault(text, index)
    for index, text in enumerate(vocabulary.tokens):
        if vocabulary.types[index] in (NORMAL, USER_DEFINED) and text not in control:
            vocab.setdefault(_printable(_bytes_of(text, vocabulary.place)), index)
    missing = [byte for byte, character in enumerate(ALPHABET) if character not in vocab]
    if missing:
        raise corrupt(vocabulary.place, f"its vocabulary has no token for the byte {missing[0]}")
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": _pattern(_tree(vocab))}, "behavior": "Isolated", "invert": False}
    return {
        "normalizer": None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [level, split]},
        "post_processor": around(vocabulary, begins=False),
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "WordLevel", "vocab": {**vocab, **control}, "unk_token": ALPHABET[0]},
    }


def _bytes_of(text: str, place: str) -> bytes:
    """Returns the bytes of a token that is written with escapes. Raises CorruptModel."""
    try:
        found = _ESCAPED.sub(lambda sought: _unescaped(sought[1]), text).encode("latin-1")
    except UnicodeEncodeError:
        raise corrupt(place, f"the token {text[:40]!r} is no string of bytes") from None
    if not 0 < len(found) <= LONGEST:
        raise corrupt(place, f"the token {text[:40]!r} has {len(found)} bytes")
    return found


def _unescaped(code: str) -> str:
    return chr(int(code[1:], 16)) if len(code) == 3 else _CONTROLS.get(code, code)


def _alphabet() -> tuple[str, ...]:
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in set(printable)]
    table = {byte: chr(byte) for byte in printable} | {byte: chr(256 + place) for place, byte in enumerate(hidden)}
    return tuple(table[byte] for byte in range(256))


ALPHABET = _alphabet()
"""The character with which byte-level tokenizers write each byte."""


def _printable(token: bytes) -> str:
    return "".join(ALPHABET[byte] for byte in token)


def _tree(vocab: dict[str, int]) -> Node:
    root: Node = {}
    for token in vocab:
        node = root
        for character in token:
            node = node.setdefault(character, {})
        node[""] = {}
    return root


def _pattern(node: Node) -> str:
    """Returns a regular expression for what may follow in a token after the characters that lead to `node` of the trie.
    The expression prefers the longest token."""
    inner = {character: child for character, child in node.items() if character}
    if not inner:
        return ""
    ends = [character for character, child in inner.items() if child.keys() == {""}]
    longer = [re.escape(character) + _pattern(child) for character, child in inner.items() if character not in ends]
    single = [re.escape(ends[0]) if len(ends) == 1 else f"[{''.join(map(re.escape, ends))}]"] if ends else []
    whole = [*longer, *single]
    if len(whole) == 1 and "" not in node:
        return whole[0]
    return f"(?:{'|'.join(whole)}){'?' if '' in node else ''}"
