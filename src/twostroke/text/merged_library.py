"""A tokenizer whose vocabulary with merges is read and applied by native code.

The library does what comes before the merges and after them. Its model knows bytes alone, so that it is built at once:
it writes each word as the bytes of its UTF-8 and a mark at the end. Native code makes tokens of these words.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec

from twostroke.text.byte_alphabet import characters
from twostroke.text.frame import Frame, frame_of
from twostroke.text.tokenizer_file import TokenizerFile, added_token, merges_file, read_tokenizer, tokenizer_bytes
from twostroke.types.made_once import made_once

if TYPE_CHECKING:
    import tokenizers

    Library: TypeAlias = "tokenizers.Tokenizer | MergedLibrary"

END = "\x01"
"""Stands after each word. A text may contain it, so as a part of a text it is a token of its own."""
END_OF_WORD, BYTE_AT_END, FIRST_ADDED = 256, 257, 258
"""Pieces that are no byte: the end of a word; END as the last character of a word, and its end; the first token that
was added to the vocabulary."""
MOST_SPELLED = 1 << 20
"""Characters of the longest text whose bytes are written out, for which the library needs 130 bytes each. Longer texts
are encoded by the library alone, which reads the vocabulary for the first one."""


class Vocabulary(Protocol):
    """A vocabulary with merges. size: the number of tokens."""

    size: int

    def id_of(self, token: str) -> int | None:
        """Returns the id of a token, by its text; None where there is none."""

    def text_of(self, token_id: int) -> str | None:
        """Returns the text of a token, by its id; None where there is none."""

    def writes_bytes(self) -> bool:
        """Returns whether each byte of a character without a token has a token."""

    def sound(self) -> bool:
        """Waits until all is read. Returns False where the merges have a form that is not read."""

    def encode(self, pieces: Sequence[int], added: Sequence[int]) -> list[int]:
        """Returns the ids of words. pieces: bytes, END_OF_WORD, BYTE_AT_END, and FIRST_ADDED + i for `added[i]`."""


MakeVocabulary = Callable[[TokenizerFile], Vocabulary]
"""Reads the vocabulary of a file. Raises some Exception where it has another form."""


class Encoded:
    """The result of encoding one text."""

    def __init__(self, ids: list[int]) -> None:
        self.ids = ids

    def __len__(self) -> int:
        return len(self.ids)


class MergedLibrary:
    """Has the methods of the library's Tokenizer that this package calls, with the same results."""

    def __init__(
        self,
        parts: Mapping[str, msgspec.Raw],
        byte_fallback: bool,
        vocabulary: Vocabulary,
        added: Mapping[int, tokenizers.AddedToken],
        whole: Callable[[], tokenizers.Tokenizer],
    ) -> None:
        """parts: the parts of the file around its model, as JSON. byte_fallback: that of the model. added: the tokens
        that were added, by id. whole: reads the tokenizer with the library alone. Raises ValueError where the library
        cannot tell an added token from a byte."""
        self._parts, self._byte_fallback, self._vocabulary, self._read_whole = parts, byte_fallback, vocabulary, whole
        self._added = dict(sorted(added.items()))
        self._ids = {token.content: token_id for token_id, token in added.items()}
        self._speller = _speller(parts, added.values())
        pieces = {self._speller.token_to_id(text): token_id for text, token_id in self._ids.items()}
        self._texts = {token_id: self._speller.id_to_token(piece) for piece, token_id in pieces.items()}
        self._special = {token.content for token in added.values() if token.special}
        self._pieces = [pieces.get(piece, -1) for piece in range(FIRST_ADDED, max(pieces, default=0) + 1)]
        self.decoder, self.post_processor = self._speller.decoder, self._speller.post_processor
        self.normalizer, self.pre_tokenizer = self._speller.normalizer, self._speller.pre_tokenizer

    @property
    def model(self) -> tokenizers.models.Model:
        """A model of the same kind, without tokens."""
        from tokenizers import models

        return models.BPE({}, [], byte_fallback=self._byte_fallback)

    def with_added(self, added: Mapping[int, tokenizers.AddedToken]) -> MergedLibrary:
        """Returns a tokenizer of the same vocabulary (shared, not copied) with other added tokens, which have these
        ids."""
        whole = partial(_with_added, self, added)
        return MergedLibrary(self._parts, self._byte_fallback, self._vocabulary, added, whole)

    def require_sound(self) -> None:
        """Waits until the merges are read. Raises CorruptModel where they cannot be used."""
        if not self._vocabulary.sound():
            _ = self.whole

    def token_to_id(self, token: str) -> int | None:
        """Returns the id of a token, by its text; None where there is none."""
        found = self._ids.get(token)
        return self._vocabulary.id_of(token) if found is None else found

    def id_to_token(self, token_id: int) -> str | None:
        """Returns the text of a token, by its id; None where there is none. The library normalizes added tokens."""
        return self._texts.get(token_id) or self._vocabulary.text_of(token_id)

    def get_added_tokens_decoder(self) -> dict[int, tokenizers.AddedToken]:
        """Returns the tokens that were added, by id."""
        return dict(self._added)

    def get_vocab_size(self, with_added_tokens: bool) -> int:
        """Returns the number of tokens."""
        pairs = self._ids.items() if with_added_tokens else ()
        new = sum(self._vocabulary.text_of(token_id) != text for text, token_id in pairs)
        return self._vocabulary.size + new

    def no_truncation(self) -> None:
        """Does nothing: texts are always encoded as a whole."""

    def no_padding(self) -> None:
        """Does nothing: no tokens are added to short texts."""

    def encode(self, text: str, pair: str | None = None) -> tokenizers.Encoding:
        """Encodes one or two texts for `frame_of`: special tokens have their ids, and texts are bytes."""
        return self._speller.encode(text, pair)

    def encode_batch_fast(self, texts: Sequence[str], add_special_tokens: bool) -> list[Encoded]:
        """Encodes texts. The interpreter's lock is not held meanwhile."""
        if max(map(len, texts), default=0) > MOST_SPELLED or not self._vocabulary.sound():
            made = self.whole.encode_batch_fast(texts, add_special_tokens=add_special_tokens)
            return [Encoded([self._numbers.get(number, number) for number in each.ids]) for each in made]
        spelled = self._speller.encode_batch_fast(texts, add_special_tokens=False)
        frame = self._frame if add_special_tokens else Frame()
        words = (self._vocabulary.encode(each.ids, self._pieces) for each in spelled)
        return [Encoded([*frame.first, *ids, *frame.last]) for ids in words]

    def decode(self, ids: Sequence[int], skip_special_tokens: bool) -> str:
        """Returns the text of the ids."""
        hidden = self._special if skip_special_tokens else ()
        tokens = [token for each in ids if (token := self.id_to_token(each)) is not None and token not in hidden]
        return " ".join(tokens) if self.decoder is None else self.decoder.decode(tokens)

    @made_once
    def _frame(self) -> Frame:
        return frame_of(self._speller, False)

    @made_once
    def whole(self) -> tokenizers.Tokenizer:
        """The tokenizer of the library alone."""
        return _uncut(self._read_whole())

    @made_once
    def _numbers(self) -> dict[int, int]:
        """The ids of added tokens that have another number in the library, by this number."""
        pairs = ((self.whole.token_to_id(text), token_id) for text, token_id in self._ids.items())
        return {number: token_id for number, token_id in pairs if number is not None and number != token_id}


def with_added(library: Library, added: Mapping[int, tokenizers.AddedToken]) -> Library:
    """Returns a tokenizer of the same model (shared, not copied) with other added tokens."""
    return library.with_added(added) if isinstance(library, MergedLibrary) else _with_added(library, added)


def _with_added(library: Library, added: Mapping[int, tokenizers.AddedToken]) -> tokenizers.Tokenizer:
    import tokenizers

    whole = library.whole if isinstance(library, MergedLibrary) else library
    made = tokenizers.Tokenizer(whole.model)
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if getattr(whole, part) is not None:
            setattr(made, part, getattr(whole, part))
    made.add_tokens([token for _, token in sorted(added.items())])
    return made


def read_merged(folder: Path, make: MakeVocabulary) -> Library:
    """Returns the tokenizer of a model's folder, with native merges where that is possible. Raises ModelNotFound,
    UnsupportedModel, CorruptModel."""
    whole = partial(read_tokenizer, folder)
    with contextlib.suppress(Exception):
        return merged_library(merges_file(tokenizer_bytes(folder)), make, whole)
    return whole()


def merged_library(
    file: TokenizerFile, make: MakeVocabulary, whole: Callable[[], tokenizers.Tokenizer]
) -> MergedLibrary:
    """Returns the tokenizer of a file whose model is a vocabulary with merges. Raises some Exception for every file
    that native code cannot treat as the library does."""
    model, vocabulary = file.model, make(file)
    if model.continuing_subword_prefix or model.end_of_word_suffix:
        raise ValueError("marks within words")
    covers = _is_byte_level(file) and all(vocabulary.id_of(each) is not None for each in characters())
    if model.unk_token is not None and not covers and not (model.byte_fallback and vocabulary.writes_bytes()):
        raise ValueError("characters without a token become the unknown token")
    known, new = set[str](), vocabulary.size
    for token in file.added_tokens:
        own = vocabulary.id_of(token.content)
        unusual = token.id != (new if own is None else own) or (own is None and vocabulary.text_of(new) is not None)
        if not token.content or token.content in known or unusual:
            raise ValueError(f"the added token {token.content!r} has another id in the library")
        known.add(token.content)
        new = max(new, token.id + 1)
    parts = {name: part.copy() for name, part in file.parts().items()}  # the whole file need not stay in memory
    added = {token.id: added_token(token) for token in file.added_tokens}
    return MergedLibrary(parts, bool(model.byte_fallback), vocabulary, added, whole)


def _is_byte_level(file: TokenizerFile) -> bool:
    steps: list[Any] = [msgspec.json.decode(file.pre_tokenizer)]
    while steps and steps[-1] is not None and steps[-1]["type"] == "Sequence":
        steps = steps[-1]["pretokenizers"]
    return bool(steps) and steps[-1] is not None and steps[-1]["type"] == "ByteLevel"


def _speller(parts: Mapping[str, msgspec.Raw], added: Iterable[tokenizers.AddedToken]) -> tokenizers.Tokenizer:
    """Returns a tokenizer of the library that writes words as bytes."""
    import tokenizers

    tokens = list(added)
    vocabulary = {f"<0x{byte:02X}>": END_OF_WORD if byte == ord(END) else byte for byte in range(256)}
    texts = {token.content for token in tokens}
    plain = {chr(byte): byte for byte in range(128) if chr(byte) not in texts}  # quicker than by the names of bytes
    vocabulary |= {**plain, END: ord(END), END + END: BYTE_AT_END}
    model = {"type": "BPE", "vocab": vocabulary, "merges": [], "byte_fallback": True, "end_of_word_suffix": END}
    made = tokenizers.Tokenizer.from_str(msgspec.json.encode({**parts, "model": model}).decode("utf-8"))
    if not texts.isdisjoint(vocabulary):
        raise ValueError("an added token is written as a byte")
    made.add_tokens(tokens)
    return _uncut(made)


def _uncut(library: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    library.no_truncation()
    library.no_padding()
    return library
