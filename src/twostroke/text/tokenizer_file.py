"""Reads tokenizer.json: its bytes, its members, and the library's tokenizer that is made of it.

The library decodes the vocabulary of a file three times, each time into other objects. This module decodes a vocabulary
with merges once and gives it to the library, which builds the same tokenizer of it.
"""

from __future__ import annotations

import contextlib
import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from twostroke.text.model_files import BYTE_ORDER_MARK
from twostroke.types.errors import CorruptModel, ModelNotFound, UnsupportedModel
from twostroke.types.reading.decoders import json_decoder
from twostroke.types.reading.unreadable import fix_unreadable, why_unreadable

if TYPE_CHECKING:
    import tokenizers

NAME = "tokenizer.json"
MAX_TOKENIZER_BYTES = 256 * 1024 * 1024
"""The largest file that is read. Other JSON files may have 16 MiB, but the file of the published Gemma 3 has 33 MB."""
COMMENT = "#version"
"""The beginning of a line among the merges that the library leaves out."""


class _Strict(msgspec.Struct, forbid_unknown_fields=True):
    """The base of structs for parts of tokenizer.json. A part with an unknown field is not decoded here, because the
    field may change the tokenizer: the `tokenizers` library then reads the whole file itself."""


class _Token(_Strict):
    id: int
    content: str
    single_word: bool
    lstrip: bool
    rstrip: bool
    normalized: bool
    special: bool


class _Merges(_Strict):
    """The member `model` of a tokenizer.json with BPE merges, as far as this module reads it. A file with BPE dropout
    does not fit, and Hugging Face's tokenizers library reads it instead."""

    type: Literal["BPE"]
    vocab: dict[str, int]
    merges: list[tuple[str, str] | str]
    dropout: None = None
    unk_token: str | None = None
    continuing_subword_prefix: str | None = None
    end_of_word_suffix: str | None = None
    fuse_unk: bool | None = None
    byte_fallback: bool | None = None
    ignore_merges: bool | None = None


_NOTHING = msgspec.Raw(b"null")


class _File(_Strict):
    model: _Merges
    version: msgspec.Raw
    truncation: msgspec.Raw = _NOTHING
    padding: msgspec.Raw = _NOTHING
    added_tokens: list[_Token] = []
    normalizer: msgspec.Raw = _NOTHING
    pre_tokenizer: msgspec.Raw = _NOTHING
    post_processor: msgspec.Raw = _NOTHING
    decoder: msgspec.Raw = _NOTHING


_FILE = json_decoder(_File)
_PARTS = ("version", "truncation", "padding", "normalizer", "pre_tokenizer", "post_processor", "decoder")
_OPTIONS = (
    "unk_token",
    "continuing_subword_prefix",
    "end_of_word_suffix",
    "fuse_unk",
    "byte_fallback",
    "ignore_merges",
)


def tokenizer_bytes(folder: Path) -> bytes:
    """Returns the bytes of tokenizer.json in a model's folder, without a byte order mark. Raises ModelNotFound,
    UnsupportedModel, CorruptModel."""
    path = folder / NAME
    if not path.is_file():
        slow = [name for name in ("tokenizer.model", "vocab.txt", "vocab.json") if (folder / name).is_file()]
        if slow:
            raise UnsupportedModel(
                f"{folder} has {slow[0]} but no tokenizer.json.",
                why="Only the fast tokenizer format is read.",
                fix="Convert it: AutoTokenizer.from_pretrained(folder).save_pretrained(folder) with transformers.",
            )
        raise ModelNotFound(f"{folder} has no tokenizer.json.", fix="Give the folder of a Hugging Face model.")
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        raise CorruptModel(f"{path} is larger than {MAX_TOKENIZER_BYTES:,} bytes.", fix="Check the download.")
    try:
        return path.read_bytes().removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        fix = fix_unreadable(error, "Download the model again.")
        raise CorruptModel(f"{path} cannot be read.", why=why_unreadable(error), fix=fix) from None


def tokenizer_members(folder: Path) -> dict[str, Any]:
    """Returns the members of tokenizer.json, as they stand in the file. Raises ModelNotFound, UnsupportedModel,
    CorruptModel."""
    raw = tokenizer_bytes(folder)
    try:
        found = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise _unusable(folder, error) from None
    if not isinstance(found, dict):
        raise _unusable(folder, "It is no JSON object")
    return found


def read_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    """The tokenizer of a model's folder. Raises ModelNotFound, UnsupportedModel, CorruptModel."""
    raw = tokenizer_bytes(folder)
    try:
        return built(raw)
    except BaseException as error:
        # The library raises a bare Exception, or PanicException (a BaseException) when its Rust code panics.
        if isinstance(error, (KeyboardInterrupt, SystemExit, MemoryError)):
            raise
        raise _unusable(folder, error) from error


def _unusable(folder: Path, why: object) -> CorruptModel:
    return CorruptModel(f"{folder / NAME} is no usable tokenizer.", why=f"{why}.", fix="Download it again.")


def built(raw: bytes) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a file's bytes. The quicker `with_merges` is tried first. Raises the library's own
    error, which names the fault in the file."""
    import tokenizers

    with contextlib.suppress(Exception), _few_collections():
        return with_merges(raw)
    return tokenizers.Tokenizer.from_str(raw.decode("utf-8"))


def with_merges(raw: bytes) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a file whose model is a vocabulary with merges. Raises some Exception for every other
    file."""
    import tokenizers
    from tokenizers import models

    file = _FILE.decode(raw)
    model, parts = file.model, {name: getattr(file, name) for name in _PARTS}
    given = {name: value for name in _OPTIONS if (value := getattr(model, name)) is not None}
    empty = {"type": "BPE", "vocab": {}, "merges": []}
    library = tokenizers.Tokenizer.from_str(msgspec.json.encode({**parts, "model": empty}).decode("utf-8"))
    library.model = models.BPE(model.vocab, _pairs(model.merges), **given)
    library.add_tokens([_added(token) for token in file.added_tokens])
    return library


def _pairs(merges: list[Any]) -> list[Any]:
    """Returns the merges as pairs. An older file has them as text: two tokens with a space between them."""
    if not merges or isinstance(merges[0], tuple):
        return merges
    return [tuple(line.split(" ")) for line in merges if not line.startswith(COMMENT)]


def _added(token: _Token) -> tokenizers.AddedToken:
    import tokenizers

    return tokenizers.AddedToken(
        token.content,
        single_word=token.single_word,
        lstrip=token.lstrip,
        rstrip=token.rstrip,
        normalized=token.normalized,
        special=token.special,
    )


@contextlib.contextmanager
def _few_collections() -> Iterator[None]:
    """Turns garbage collection off for the block: a million new objects would trigger collections, and none of them is
    garbage yet."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
