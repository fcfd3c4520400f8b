"""A model's tokenizer: turns text into token ids and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from twostroke.text.byte_alphabet import bytes_of
from twostroke.text.control_tokens import ControlTokens
from twostroke.text.frame import Frame, frame_of
from twostroke.text.special_tokens import SpecialTokens, ids_of_texts, read_special_tokens
from twostroke.text.templates.quoting import Quoting, Spans
from twostroke.text.templates.template_files import read_sources
from twostroke.text.token_bound import TokenBound, covers_every_byte
from twostroke.text.tokenizer_file import read_tokenizer
from twostroke.types.errors import InvalidRequest, TokenizerFailed, prompt_too_long
from twostroke.types.first_use.made_once import made_once

if TYPE_CHECKING:
    import tokenizers

MAX_PROMPT_CHARACTERS = 8 * 1024 * 1024
BOUNDED_CHARACTERS = 64 * 1024
"""For texts with more characters, a lower bound of the number of tokens is computed first. If it reaches the context,
the text is refused without tokenizing it. Shorter texts are tokenized at once, which takes milliseconds."""

_T = TypeVar("_T")


class Tokenizer:
    """A tokenizer that is immutable after construction and safe to share between threads.

    bos_id: None where there is none. end_token_ids: tokens that end an answer. special_ids: tokens that are never part
    of text. byte_level: True where every token is a string of bytes, whatever stands around it. tokens_are_bytes: True
    where that holds except for a space in front of the text, so that `token_bytes` of all tokens joined is the text.
    """

    def __init__(
        self, library: tokenizers.Tokenizer, special: SpecialTokens, template_sources: Iterable[str] = ()
    ) -> None:
        """template_sources: the sources of the model's chat templates, for the control tokens that they write."""
        # The trainer may have left a truncation limit or padding in tokenizer.json, which would silently change
        # prompts.
        library.no_truncation()
        library.no_padding()
        self._library = library
        self.special_texts = dict(special.texts)
        self._control = ControlTokens(library, template_sources)
        self.bos_id, self.end_token_ids = ids_of_texts(special, library.token_to_id)
        self.special_ids = frozenset(i for i, t in library.get_added_tokens_decoder().items() if t.special)
        self.vocab_size: int = library.get_vocab_size(with_added_tokens=True)
        steps = list(_decoder_steps(library))
        self.byte_level = [step["type"] for step in steps] == ["ByteLevel"]
        self._byte_alphabet = any(step["type"] == "ByteLevel" for step in steps)
        self._byte_fallback = any(step["type"] == "ByteFallback" for step in steps)
        self._space = next(filter(None, map(_space_mark, steps)), None)
        self._known_bytes: dict[int, bytes] = {}  # bytes by token; a step looks up one token for each stream
        self.tokens_are_bytes = self._byte_alphabet or self._byte_fallback or self._space is not None

    @classmethod
    def from_folder(cls, path: str | Path, own_template: Path | None = None) -> Tokenizer:
        """Reads a Hugging Face folder. own_template: see `read_sources`.

        Raises ModelNotFound without tokenizer.json, CorruptModel for a broken one, ConfigError.
        """
        folder = Path(path)
        special = read_special_tokens(folder)
        return cls(read_tokenizer(folder), special, read_sources(folder, own_template).values())

    def encode_prompt(self, text: str, context_tokens: int | None = None, *, parse_special: bool = True) -> list[int]:
        """Returns token ids of plain text, with the special tokens (BOS) that the tokenizer puts around a text.

        context_tokens: the size of the context. A text that leaves no room in the context raises ContextLengthExceeded.
        A long text is compared with the context by a lower bound first, before it is tokenized. parse_special: False
        encodes the texts of control tokens as text. Raises InvalidRequest, TokenizerFailed.
        """
        quoted = () if parse_special else ((0, len(text)),)
        return self._encoded(text, True, quoted, context_tokens)

    def encode_rendered(self, text: str, context_tokens: int | None = None, *, quoted: Spans = ()) -> list[int]:
        """Returns token ids of text that already holds its special tokens, as a chat template writes it: no second BOS
        is added.

        quoted: parts in which the texts of control tokens are text. For context_tokens and errors see `encode_prompt`.
        """
        return self._encoded(text, False, quoted, context_tokens)

    def count_rendered(self, text: str, *, quoted: Spans = ()) -> int:
        """Returns the number of token ids that `encode_rendered` would return."""
        _utf8(text)
        return len(self._encoding(text, False)) if not quoted else len(self._encoded(text, False, quoted, None))

    def frame(self, pair: bool) -> Frame:
        """Returns the special tokens around one text, or around a pair of texts."""
        return self._pair_frame if pair else self._text_frame

    def quoting(self) -> Quoting:
        """Returns an object for one prompt that finds control tokens in the texts that a client wrote."""
        return Quoting(self._control.find, self._control.always)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Returns the text of the ids without special tokens; ids outside the vocabulary are left out."""
        return _guarded(lambda: self._library.decode(list(token_ids), skip_special_tokens=True))

    def has(self, token_id: int) -> bool:
        """Returns True where this id has a token. A model's logits may have a few more ids than its vocabulary has
        tokens."""
        return self._library.id_to_token(token_id) is not None

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds in the middle of a text; b"" for an id outside the vocabulary."""
        found = self._known_bytes.get(token_id)
        if found is None:
            found = self._find_bytes(token_id)
            if self.has(token_id):  # only these are kept: there are endlessly many ids outside the vocabulary
                self._known_bytes[token_id] = found
        return found

    def rows_bytes(self, num_rows: int) -> list[bytes]:
        """`token_bytes` of the first `num_rows` ids. Nothing is kept, so that a whole vocabulary takes no memory."""
        return [self._find_bytes(token_id) for token_id in range(num_rows)]

    def _find_bytes(self, token_id: int) -> bytes:
        token = self._library.id_to_token(token_id)
        return b"" if token is None else self._written(token, token_id)

    def _written(self, token: str, token_id: int) -> bytes:
        """Returns the bytes that a token adds to a text. token: the token as the vocabulary writes it, for example with
        another character for a space."""
        if token_id in self.special_ids:
            return token.encode("utf-8")
        if self._byte_alphabet:
            return bytes_of(token)
        if self._byte_fallback and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            try:
                return bytes([int(token[3:5], 16)])
            except ValueError:
                pass
        return (token.replace(self._space, " ") if self._space else token).encode("utf-8")

    def token_text(self, token_id: int) -> str:
        """`token_bytes` as text; bytes that are no character alone become U+FFFD."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def id_of(self, token: str) -> int | None:
        """The id of a token as written in the vocabulary, or None."""
        found: int | None = self._library.token_to_id(token)
        return found

    @made_once
    def _text_frame(self) -> Frame:
        return frame_of(self._library, False)

    @made_once
    def _pair_frame(self) -> Frame:
        return frame_of(self._library, True)

    @made_once
    def _bound(self) -> TokenBound | None:
        """The object that computes a lower bound on the number of tokens of a text; None where this tokenizer allows no
        such bound. It is made with the first long text, because it takes a pass over the whole vocabulary."""
        return TokenBound(self._library) if covers_every_byte(self._library) else None

    def _encoded(self, text: str, add_special_tokens: bool, quoted: Spans, context_tokens: int | None) -> list[int]:
        data = _utf8(text)
        if context_tokens is not None and len(text) > BOUNDED_CHARACTERS and self._bound is not None:
            fewest = self._bound.fewest(data)
            if fewest >= context_tokens:
                raise prompt_too_long(fewest, context_tokens, exact=False)
        del data
        found: list[int] | tokenizers.Encoding
        if quoted:
            found = _guarded(lambda: self._control.encode(text, quoted, add_special_tokens))
        else:
            found = self._encoding(text, add_special_tokens)
        if context_tokens is not None and len(found) >= context_tokens:
            raise prompt_too_long(len(found), context_tokens, exact=True)
        return found if isinstance(found, list) else found.ids

    def _encoding(self, text: str, add_special_tokens: bool) -> tokenizers.Encoding:
        """Tokenizes with the only function of the tokenizers library that releases the GIL; it computes no offsets of
        tokens in the text."""
        return _guarded(lambda: self._library.encode_batch_fast([text], add_special_tokens=add_special_tokens)[0])


def _utf8(text: str) -> bytes:
    """Returns the text's bytes. Raises InvalidRequest where it is too long, or holds half of a surrogate pair."""
    if len(text) > MAX_PROMPT_CHARACTERS:
        raise InvalidRequest(
            f"The prompt has {len(text):,} characters; at most {MAX_PROMPT_CHARACTERS:,} are read.", param="prompt"
        )
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise InvalidRequest(
            "The prompt holds half of a surrogate pair, which is no character.", param="prompt"
        ) from error


def _guarded(call: Callable[[], _T]) -> _T:
    """Calls the library and raises Twostroke's errors in place of the library's. A panic of the library's Rust code
    comes as a BaseException, which is replaced, too: no caller would turn it into an answer."""
    try:
        return call()
    except BaseException as error:
        if isinstance(error, InvalidRequest):
            raise
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise TokenizerFailed("The model's tokenizer failed on this text.", why=f"{error}.") from error


def _decoder_steps(library: tokenizers.Tokenizer) -> Iterator[dict[str, Any]]:
    """Returns the decoder's steps in order, sequences flattened."""
    if library.decoder is None:
        return
    waiting = [json.loads(library.decoder.__getstate__())]
    while waiting:
        step = waiting.pop(0)
        if step["type"] == "Sequence":
            waiting[:0] = step["decoders"]
        else:
            yield step


def _space_mark(step: dict[str, Any]) -> str | None:
    """Returns the character that this decoder step turns into a space; None where there is none."""
    if step["type"] == "Metaspace":
        return str(step["replacement"])
    if step["type"] == "Replace" and step.get("content") == " ":
        pattern = step.get("pattern", {})
        return pattern.get("String") if isinstance(pattern, dict) else None
    return None
