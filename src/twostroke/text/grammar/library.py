"""The C interface of llguidance, which its Python package contains. No call through this module holds the interpreter's
lock.

The package's own Python classes hold the lock while they read a vocabulary: 0.6 to 1.3 s for 262,144 tokens. In this
time no stream of the server would move.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from twostroke.system import here
from twostroke.types.errors import BackendError

SPECIAL_MARK = b"\xff"
"""The first byte by which the library recognizes special tokens; no text contains it."""
SLICES = (rb'[^"\\\x00-\x1F\x7F]{1,10}', rb'[^"\\\x00-\x1F\x7F]{1,30}')
"""Patterns of token sets: tokens that may stand inside a JSON string, up to two lengths. llguidance allows or forbids
all tokens of a set at once where it can. The library's own list has two more patterns. They make no mask faster, and
reading a vocabulary takes 1.5 times as long with them."""
_ERROR_BYTES = 1000
_ROOM_BYTES = 512  # bytes of a structure: more than any version needs, and zero where this code sets nothing
_loading = threading.Lock()


class _TokenizerInit(ctypes.Structure):
    _fields_ = (
        ("struct_size", ctypes.c_size_t),
        ("vocab_size", ctypes.c_uint32),
        ("tok_eos", ctypes.c_uint32),
        ("token_lens", ctypes.c_void_p),
        ("token_bytes", ctypes.c_void_p),
        ("tokenizer_json", ctypes.c_void_p),
        ("tokenize_assumes_string", ctypes.c_bool),
        ("tokenize_fn", ctypes.c_void_p),
        ("use_approximate_greedy_tokenize_fn", ctypes.c_bool),
        ("tokenize_user_data", ctypes.c_void_p),
        ("slices", ctypes.c_void_p),
        ("tok_eos_extra", ctypes.c_void_p),
        ("tok_eos_extra_count", ctypes.c_uint32),
    )


class _Limits(ctypes.Structure):
    _fields_ = (
        ("max_items_in_row", ctypes.c_size_t),
        ("initial_lexer_fuel", ctypes.c_uint64),
        ("step_lexer_fuel", ctypes.c_uint64),
        ("step_max_items", ctypes.c_size_t),
        ("max_lexer_states", ctypes.c_size_t),
        ("max_grammar_size", ctypes.c_size_t),
        ("precompute_large_lexemes", ctypes.c_bool),
        ("verbose_errors", ctypes.c_bool),
    )


class _MatcherInit(ctypes.Structure):
    _fields_ = (
        ("tokenizer", ctypes.c_void_p),
        ("log_buffer_level", ctypes.c_uint32),
        ("log_stderr_level", ctypes.c_uint32),
        ("ff_tokens_ok", ctypes.c_bool),
        ("backtrack_ok", ctypes.c_bool),
        ("limits", _Limits),
        ("room", ctypes.c_uint8 * _ROOM_BYTES),
    )


_DEFAULTS = {"max_items_in_row": 2000, "initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000}
"""The header's default values of some limits. They show that the structure's fields lie at the places that this module
assumes."""
_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "llg_constraint_init_set_defaults": (None, (ctypes.c_void_p, ctypes.c_void_p)),
    "llg_new_tokenizer_v2": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t)),
    "llg_free_tokenizer": (None, (ctypes.c_void_p,)),
    "llg_new_matcher": (ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p)),
    "llg_free_matcher": (None, (ctypes.c_void_p,)),
    "llg_matcher_get_mask_byte_size": (ctypes.c_size_t, (ctypes.c_void_p,)),
    "llg_matcher_compute_mask_into": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)),
    "llg_matcher_consume_token": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_uint32)),
    "llg_matcher_rollback": (ctypes.c_int32, (ctypes.c_void_p, ctypes.c_size_t)),
    "llg_matcher_get_error": (ctypes.c_char_p, (ctypes.c_void_p,)),
}


def library() -> ctypes.CDLL:
    """Returns the loaded library. Raises BackendError for a version that this code does not know."""
    with _loading:
        return _loaded()


@cache
def _loaded() -> ctypes.CDLL:
    import llguidance

    try:
        found = ctypes.CDLL(str(next(Path(llguidance.__file__).parent.glob(f"_lib*{here.LIBRARY_SUFFIX_OF_PYTHON}"))))
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError, StopIteration) as error:
        raise _not_known(f"{error or 'it has no library file'}.") from None
    init = _MatcherInit()
    found.llg_constraint_init_set_defaults(ctypes.byref(init), None)
    if any(getattr(init.limits, name) != value for name, value in _DEFAULTS.items()):
        raise _not_known("Its structures have another form.")
    return found


def _not_known(why: str) -> BackendError:
    return BackendError("llguidance has no C interface that is known here.", why=why, fix="Install llguidance 1.9.")


class LibraryVocabulary:
    """The model's tokens in llguidance's form: read-only, for any number of threads. Making one takes a while."""

    def __init__(self, tokens: Sequence[bytes], special_ids: Sequence[int], end_token_ids: Sequence[int]) -> None:
        self._library = library()
        marked = list(tokens)
        for token_id in special_ids:
            marked[token_id] = SPECIAL_MARK + marked[token_id]
        joined = ctypes.create_string_buffer(b"".join(marked))
        lengths = (ctypes.c_uint32 * len(marked))(*map(len, marked))
        more = (ctypes.c_uint32 * len(end_token_ids))(*end_token_ids[1:])
        slices = (ctypes.c_char_p * (len(SLICES) + 1))(*SLICES)
        init = _TokenizerInit(
            struct_size=ctypes.sizeof(_TokenizerInit),
            vocab_size=len(marked),
            tok_eos=end_token_ids[0],
            token_lens=ctypes.addressof(lengths),
            token_bytes=ctypes.addressof(joined),
            use_approximate_greedy_tokenize_fn=True,  # nothing is tokenized: no text is forced (guard_child.OPTIONS)
            slices=ctypes.addressof(slices),
            tok_eos_extra=ctypes.addressof(more),
            tok_eos_extra_count=len(end_token_ids) - 1,
        )
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        self.handle = self._library.llg_new_tokenizer_v2(ctypes.byref(init), error, _ERROR_BYTES)
        if not self.handle:
            raise BackendError("The vocabulary cannot be read by llguidance.", why=error.value.decode(errors="replace"))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self._library.llg_free_tokenizer(self.handle)


class Matcher:
    """Follows the tokens of one answer through a grammar, for one thread at a time. After a failure, `fault` keeps the
    reason for ever."""

    def __init__(self, vocabulary: LibraryVocabulary, source: str, limits: Mapping[str, Any]) -> None:
        self._library, self._vocabulary = library(), vocabulary  # the vocabulary must outlive this object
        init = _MatcherInit()
        self._library.llg_constraint_init_set_defaults(ctypes.byref(init), vocabulary.handle)
        init.log_buffer_level = init.log_stderr_level = 0
        for name, value in limits.items():
            setattr(init.limits, name, value)
        data = source.encode("utf-8", errors="replace").replace(b"\0", rb"\x00")
        self._handle = self._library.llg_new_matcher(ctypes.byref(init), b"lark", data)
        size_bytes: int = self._library.llg_matcher_get_mask_byte_size(self._handle)
        self._mask = ctypes.create_string_buffer(size_bytes)

    def __del__(self) -> None:
        if getattr(self, "_handle", None):
            self._library.llg_free_matcher(self._handle)

    @property
    def fault(self) -> str:
        """The reason why the matcher has failed; empty where it has not."""
        found: bytes | None = self._library.llg_matcher_get_error(self._handle)
        return "" if found is None else found.decode(errors="replace")

    def mask(self) -> bytes | None:
        """Returns one bit for each token; at the grammar's end, only the end tokens are set. Returns None where the
        matcher has failed."""
        wrong = self._library.llg_matcher_compute_mask_into(self._handle, self._mask, len(self._mask))
        return None if wrong else self._mask.raw

    def consume(self, token_id: int) -> bool:
        """Goes on in the grammar by one token. Returns False where the matcher has failed."""
        return not self._library.llg_matcher_consume_token(self._handle, token_id)

    def rollback(self, num_tokens: int) -> bool:
        """Goes back by the last `num_tokens` tokens. Returns False where the matcher has failed."""
        return not self._library.llg_matcher_rollback(self._handle, num_tokens)
