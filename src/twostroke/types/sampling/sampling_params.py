"""The parameters by which the tokens of one request are chosen."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from twostroke.types.errors import InvalidRequest
from twostroke.types.grammar import Grammar
from twostroke.types.reading.field_values import number, numbers_by_id, texts, truth, whole_number, whole_numbers
from twostroke.types.sampling.forbidden_tokens import check_bad_words, id_sequences, packed_ids
from twostroke.types.sampling.many_answers import check_many_answers, early_stopping
from twostroke.types.sampling.sampler_fields import KINDS, RANGES, SamplerFields, check_samplers, left_out

MAX_TOP_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_CHARACTERS = 256
MAX_LOGIT_BIAS = 1024
MAX_N = 128
TOP_K_OFF = -1
"""The value of top_k, and of top_n_sigma, that means no limit, as in vLLM and llama.cpp."""


@dataclass(frozen=True, slots=True)
class SamplingParams(SamplerFields):
    """The parameters by which the tokens of one request are chosen. They are frozen, and checked at construction, which
    raises InvalidRequest naming the field.

    Values get their exact types at construction: a text for `stop` becomes a tuple of one stop string, lists become
    tuples, top_k=-1 becomes 0.

    temperature: 0 means greedy. top_k: 0 or -1 means off. top_p, min_p: probabilities. seed: None lets the engine draw
    one. logprobs: None means none; k >= 0 asks for the log probabilities of the chosen token and of the k most likely
    ones. max_tokens: None means up to the end of the context; 0 computes the prompt alone. stop: strings that end the
    text and are not part of it. prompt_logprobs: the same as logprobs, for each prompt token after the first; such a
    prompt is computed whole, cached or not. repetition_window: the number of last tokens of prompt and output that
    repetition_penalty looks at; None means all. allowed_token_ids: the only tokens that may be chosen, end tokens
    included; None means any. bad_words: texts that the output must not hold; an engine takes them as bad_token_ids
    (text.bad_words makes these). bad_token_ids: sequences of token ids that the output must not hold: the last id of a
    sequence is not chosen after its other ids. As in vLLM, the same text made of other tokens is not excluded.

    grammar: the form that the answer must have. It decides where the answer may end, so min_tokens and ignore_eos
    cannot be used with it. If max_tokens or a stop string cuts an answer short, only a beginning of the required form
    is given.

    best_of: the number of answers that are made; None means n. Of these, the n with the highest mean log probability of
    their tokens (the end token counts) are given, best first.

    use_beam_search: True to find the answers by a beam search with best_of beams, as transformers'
    generate(num_beams=...) does. An answer's score is the sum of its tokens' log probabilities / (its length **
    length_penalty). early_stopping: decides when the search ends. True: when there are as many finished answers as
    beams. False: when the best beam, at its present length, could not beat the worst finished answer. "never": when
    that beam could not beat this answer at any length that it may still reach.
    """

    n: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    grammar: Grammar | None = None
    repetition_window: int | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    bad_words: tuple[str, ...] = ()
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    best_of: int | None = None
    use_beam_search: bool = False
    length_penalty: float = 1.0
    early_stopping: bool | str = False
    has_chain: bool = field(default=False, init=False, repr=False, compare=False)
    """Whether anything other than temperature, top_k, top_p and min_p decides which token is drawn. It is the value of
    the property `narrows`, computed once because the sampler reads it at every token."""
    allowed_ids_i32: bytes = field(default=b"", init=False, repr=False, compare=False)
    """allowed_token_ids as 32-bit integers, made once because the sampler reads them at every token."""

    def __post_init__(self) -> None:
        self._make_exact()
        for name, low, high in _RANGES:
            _check_range(name, getattr(self, name), low, high)
        if self.repetition_penalty <= 0:
            raise InvalidRequest("repetition_penalty must be above 0.", param="repetition_penalty")
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise InvalidRequest(
                f"min_tokens ({self.min_tokens}) is above max_tokens ({self.max_tokens}).", param="min_tokens"
            )
        if self.grammar is not None and (self.min_tokens or self.ignore_eos):
            name = "min_tokens" if self.min_tokens else "ignore_eos"
            raise InvalidRequest(
                f"{name} cannot be used with a grammar.", param=name, why="The grammar decides where the answer ends."
            )
        _check_stops(self.stop)
        self._check_alone_with_grammar()
        check_bad_words(self.bad_words)
        check_samplers(self)
        check_many_answers(self)
        object.__setattr__(self, "has_chain", self.narrows)
        object.__setattr__(self, "allowed_ids_i32", packed_ids(self.allowed_token_ids))
        if len(self.logit_bias) > MAX_LOGIT_BIAS:
            raise InvalidRequest(f"logit_bias has more than {MAX_LOGIT_BIAS} entries.", param="logit_bias")
        for token_id, bias in self.logit_bias.items():
            if token_id < 0:
                raise InvalidRequest(f"logit_bias names the negative token id {token_id}.", param="logit_bias")
            _check_range("logit_bias", bias, -100, 100)

    def _make_exact(self) -> None:
        for names, read in _KINDS:
            for name in names:
                value = getattr(self, name)
                if value is _DEFAULTS.get(name, _DEFAULTS):  # exact already, like most fields of most requests
                    continue
                if value is not None or name not in _OPTIONAL:
                    object.__setattr__(self, name, read(name, value))
        if self.top_k == TOP_K_OFF:
            object.__setattr__(self, "top_k", 0)
        if self.top_n_sigma == TOP_K_OFF:
            object.__setattr__(self, "top_n_sigma", 0.0)
        if self.samplers is not None:
            for name, value in left_out(self.samplers).items():
                object.__setattr__(self, name, value)
        if self.grammar is not None and not isinstance(self.grammar, Grammar):
            raise InvalidRequest(
                f"grammar must be a Grammar, not {type(self.grammar).__name__}.",
                param="grammar",
                fix="Make one with Grammar.json_schema or Grammar.regex.",
            )

    def _check_alone_with_grammar(self) -> None:
        for name in ("allowed_token_ids", "bad_words", "bad_token_ids"):
            if getattr(self, name) and self.grammar is not None:
                raise InvalidRequest(
                    f"{name} cannot be used with a grammar.",
                    param=name,
                    why="Together they could leave no token.",
                    fix="Say in the grammar what the answer must not hold.",
                )

    @property
    def greedy(self) -> bool:
        """True where the most likely token is always taken."""
        return self.temperature == 0.0 or self.use_beam_search

    @property
    def num_answers(self) -> int:
        """The number of answers that are made, of which n are given."""
        return self.n if self.best_of is None else self.best_of

    @property
    def chooses(self) -> bool:
        """Whether more answers are made than given, or beams are searched. The answers are then compared before any is
        given."""
        return self.use_beam_search or self.num_answers > self.n


_DEFAULTS = {each.name: each.default for each in fields(SamplingParams) if each.default is not MISSING}

_OPTIONAL = (
    *("seed", "max_tokens", "logprobs", "prompt_logprobs", "repetition_window", "allowed_token_ids", "best_of"),
    "samplers",
)

_KINDS: tuple[tuple[tuple[str, ...], Callable[[str, Any], Any]], ...] = (
    (
        (
            *("n", "top_k", "seed", "max_tokens", "min_tokens", "logprobs", "prompt_logprobs", "repetition_window"),
            "best_of",
        ),
        whole_number,
    ),
    (
        (
            *("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty"),
            "length_penalty",
        ),
        number,
    ),
    (("ignore_eos", "use_beam_search"), truth),
    (("early_stopping",), early_stopping),
    (("stop", "bad_words"), texts),
    (("stop_token_ids", "allowed_token_ids"), whole_numbers),
    (("bad_token_ids",), id_sequences),
    (("logit_bias",), numbers_by_id),
    *KINDS,
)

_RANGES: tuple[tuple[str, float, float], ...] = (
    ("n", 1, MAX_N),
    ("best_of", 1, MAX_N),
    ("length_penalty", -10, 10),
    ("temperature", 0, 2),
    ("top_k", 0, math.inf),
    ("top_p", 0, 1),
    ("min_p", 0, 1),
    ("repetition_penalty", 0, 10),
    ("presence_penalty", -2, 2),
    ("frequency_penalty", -2, 2),
    ("seed", -(2**63), 2**64 - 1),
    ("max_tokens", 0, math.inf),
    ("min_tokens", 0, math.inf),
    ("repetition_window", 0, math.inf),
    ("logprobs", 0, MAX_TOP_LOGPROBS),
    ("prompt_logprobs", 0, MAX_TOP_LOGPROBS),
    *((name, *bounds) for name, bounds in RANGES.items()),
)


def _check_range(name: str, value: float | None, low: float, high: float) -> None:
    if value is None:
        return
    if not (low <= value <= high) or math.isnan(value):
        bound = f"at least {low:g}" if high == math.inf else f"between {low:g} and {high:g}"
        raise InvalidRequest(f"{name} must be {bound}, not {value}.", param=name)


def _check_stops(stop: tuple[str, ...]) -> None:
    if len(stop) > MAX_STOPS:
        raise InvalidRequest(f"stop has {len(stop)} strings; at most {MAX_STOPS} are allowed.", param="stop")
    for text in stop:
        if not text:
            raise InvalidRequest("stop holds an empty string.", param="stop")
        if len(text) > MAX_STOP_CHARACTERS:
            raise InvalidRequest(f"a stop string is longer than {MAX_STOP_CHARACTERS} characters.", param="stop")
