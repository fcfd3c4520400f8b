"""The tokens that a request forbids in its output: all tokens outside a list, words, and sequences of tokens."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.field_values import whole_numbers

MAX_BAD_WORDS = 1024
MAX_BAD_WORD_CHARACTERS = 256
NO_TOKEN_LEFT = "The request's own limits leave no token to choose from."
"""The error of a completion whose allowed tokens and bad words together forbid every token."""


class NoTokenLeft(ValueError):
    """The request itself forbids every token."""


def packed_ids(token_ids: Sequence[int] | None) -> bytes:
    """Returns allowed_token_ids as the bytes of 32-bit integers; b"" for None. Raises InvalidRequest where the list is
    empty or an id is out of range."""
    if token_ids is None:
        return b""
    if not token_ids:
        raise InvalidRequest("allowed_token_ids is empty.", param="allowed_token_ids", fix="Leave it out.")
    if min(token_ids) < 0 or max(token_ids) >= 2**31:
        raise InvalidRequest("allowed_token_ids holds an id that no token has.", param="allowed_token_ids")
    return array("i", token_ids).tobytes()


def check_bad_words(words: Sequence[str]) -> None:
    """Raises InvalidRequest where there are too many bad words, or where one is empty or too long."""
    if len(words) > MAX_BAD_WORDS:
        raise InvalidRequest(f"bad_words has more than {MAX_BAD_WORDS:,} entries.", param="bad_words")
    for word in words:
        if not word.strip() or len(word) > MAX_BAD_WORD_CHARACTERS:
            raise InvalidRequest(
                f"A bad word is empty, or longer than {MAX_BAD_WORD_CHARACTERS} characters.", param="bad_words"
            )


def id_sequences(name: str, value: Any) -> tuple[tuple[int, ...], ...]:
    """Returns a list of lists of token ids as tuples. Raises InvalidRequest where `value` is anything else, is too
    long, or holds an empty list."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidRequest(f"{name} must be a list of lists of token ids.", param=name)
    made = tuple(whole_numbers(name, sequence) for sequence in value)
    if len(made) > 2 * MAX_BAD_WORDS or not all(made):
        raise InvalidRequest(f"{name} is too long, or holds an empty list.", param=name)
    return made
