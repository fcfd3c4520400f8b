"""A vocabulary of ranks: strings of bytes, each with its place in the order of merges (the format of tiktoken).

Two neighbours merge where their join is a token; of all such pairs the one whose join has the least rank goes first. A
tokenizer.json names pairs instead of joins, so each token is listed with every pair that makes it. Sources: src/lib.rs
of tiktoken (`byte_pair_merge`), convert_slow_tokenizer.py of transformers (`TikTokenConverter`).
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from twostroke.text.byte_alphabet import text_of
from twostroke.types.errors import CorruptModel
from twostroke.weights.json_file import DOWNLOAD_AGAIN
from twostroke.weights.vocabularies.members import begins_with, bpe, sequence, split, tokenizer

LONGEST_TOKEN_BYTES = 1024
"""The most bytes of a token for which merges are listed, because the number of its merges grows with its length. A
longer token is found only where the tokenizer looks up a whole word."""


def read_ranks(data: bytes, place: str) -> dict[bytes, int]:
    """Returns the ranks of a rank file by the bytes of their tokens. Its lines have the form `base64 rank`. Raises
    CorruptModel, which names `place`."""
    found: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            text, rank = line.split()
            found[base64.b64decode(text, validate=True)] = int(rank)
        except (ValueError, binascii.Error):
            raise CorruptModel(
                f"Line {number} of {place} is no pair of base64 text and rank.", fix=DOWNLOAD_AGAIN
            ) from None
    return checked(found, place)


def checked(ranks: dict[bytes, int], place: str) -> dict[bytes, int]:
    """Returns the same ranks. Raises CorruptModel where a byte has no token, or where the ranks do not count from 0
    without a gap."""
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise CorruptModel(f"{place} has no token for some of the 256 bytes.", fix=DOWNLOAD_AGAIN)
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise CorruptModel(f"The ranks of {place} do not count from 0 without a gap.", fix=DOWNLOAD_AGAIN)
    return ranks


def members_of_ranks(
    ranks: Mapping[bytes, int],
    patterns: Sequence[str],
    added_tokens: list[dict[str, Any]],
    *,
    first_id: int = 0,
    begins: str | None = None,
) -> dict[str, Any]:
    """Returns the content of tokenizer.json for a vocabulary of ranks.

    patterns: the regular expressions that split a text before merges; each splits the pieces of the one before.
    first_id: the id of rank 0. begins: the text of the added token that stands in front of each text, or None.
    """
    vocab = {text_of(token): first_id + rank for token, rank in ranks.items()}
    # The library gives an added token its id only where the model has it under the same id.
    vocab |= {token["content"]: token["id"] for token in added_tokens}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    begin = next((token for token in added_tokens if token["content"] == begins), None)
    return tokenizer(
        bpe(vocab, _merges(ranks), ignore_merges=True),
        added_tokens,
        pre_tokenizer=sequence("pretokenizers", [*map(split, patterns), level]),
        post_processor=None if begin is None else begins_with(begin["content"], begin["id"]),
        decoder={"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
    )


def _merges(ranks: Mapping[bytes, int]) -> list[list[str]]:
    """Returns all pairs of tokens whose join is a token, sorted by the join's rank."""
    merges: list[list[str]] = []
    texts = {token: text_of(token) for token in ranks}
    for token in sorted(ranks, key=ranks.__getitem__):
        if not 1 < len(token) <= LONGEST_TOKEN_BYTES:
            continue
        pairs = ((token[:middle], token[middle:]) for middle in range(1, len(token)))
        known = [(left, right) for left, right in pairs if left in ranks and right in ranks]
        known.sort(key=lambda pair: (ranks[pair[0]], ranks[pair[1]]))
        merges += [[texts[left], texts[right]] for left, right in known]
    return merges
