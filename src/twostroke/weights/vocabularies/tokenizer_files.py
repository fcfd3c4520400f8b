"""The files that are made of a vocabulary file."""

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
