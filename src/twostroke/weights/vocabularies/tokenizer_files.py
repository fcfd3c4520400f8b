"""The contents of tokenizer.json and tokenizer_config.json, as they are made from a vocabulary file of tiktoken,
SentencePiece or Mistral (tekken)."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class TokenizerFiles(Struct, frozen=True):
    """members: all members of tokenizer.json. texts: the special tokens by their names in tokenizer_config.json
    (`eos_token`).

    template: a chat template for folders that have none, where the vocabulary tells how its models converse.
    """

    members: dict[str, Any]
    texts: dict[str, str]
    template: str | None = None
