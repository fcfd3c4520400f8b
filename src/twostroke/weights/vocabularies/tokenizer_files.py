"""What is made of a vocabulary file."""

from __future__ import annotations

from typing import Any

from msgspec import Struct


class TokenizerFiles(Struct, frozen=True):
    """members: all of tokenizer.json. texts: special tokens as tokenizer_config.json names them (`eos_token`).

    template: a chat template for folders that have none, where the vocabulary tells how its models converse.
    """

    members: dict[str, Any]
    texts: dict[str, str]
    template: str | None = None
