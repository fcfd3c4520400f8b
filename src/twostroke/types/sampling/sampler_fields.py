"""The parameters of the samplers other than top-k, top-p and min-p, by llama.cpp's names: their values and ranges, and
the values that turn a sampler off.

The rules of these samplers are in runner/sampling/samplers, one file for each sampler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from twostroke.types.errors import InvalidRequest
from twostroke.types.reading.field_values import number, texts, whole_number, whole_numbers

MAX_BREAKERS = 64
MAX_BREAKER_CHARACTERS = 256
MOST_EXPONENT = 10.0
PENALTIES, DRY, SIGMA, TOP_K, TYPICAL = "penalties", "dry", "top_n_sigma", "top_k", "typ_p"
TOP_P, MIN_P, XTC, TEMPERATURE, ADAPTIVE = "top_p", "min_p", "xtc", "temperature", "adaptive_p"
OF_LOGITS = (PENALTIES, DRY)
"""Samplers that change logits before any token is left out. In `samplers` they must come before all others."""
SAMPLERS = (*OF_LOGITS, SIGMA, TOP_K, TYPICAL, TOP_P, MIN_P, XTC, TEMPERATURE, ADAPTIVE)
_OFF: Mapping[str, Mapping[str, float]] = {
    PENALTIES: {"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0},
    DRY: {"dry_multiplier": 0.0},
    SIGMA: {"top_n_sigma": 0.0},
    TOP_K: {"top_k": 0},
    TYPICAL: {"typical_p": 1.0},
    TOP_P: {"top_p": 1.0},
    MIN_P: {"min_p": 0.0},
    XTC: {"xtc_probability": 0.0},
    TEMPERATURE: {"temperature": 1.0, "dynatemp_range": 0.0},
    ADAPTIVE: {"adaptive_target": -1.0},
}
"""The fields that each sampler reads, with values that change nothing."""
_OTHER_NAMES = {
    "typical_p": TYPICAL,
    "typical": TYPICAL,
    "temp": TEMPERATURE,
    "top-n-sigma": SIGMA,
    "top-k": TOP_K,
    "top-p": TOP_P,
    "min-p": MIN_P,
    "adaptive-p": ADAPTIVE,
}
MIROSTAT_1, MIROSTAT_2 = 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplerFields:
    """typical_p: keep the tokens whose surprise is nearest to the expected surprise, up to this total probability; 1 is
    off.

    top_n_sigma: keep logits within this many standard deviations of the largest; 0 or -1 is off. dynatemp_range: the
    temperature follows the entropy and differs from `temperature` by at most this; dynatemp_exponent is the shape of
    the curve. xtc_probability: the probability with which XTC acts at a token. It then leaves out all tokens of at
    least xtc_threshold but the least likely of them. dry_multiplier: 0 is off; else a token that would continue a
    repetition of m tokens loses multiplier * base^(m - dry_allowed_length) where m is at least dry_allowed_length.
    dry_penalty_last_n: the number of tokens of prompt and output that are searched; -1 is all. dry_sequence_breakers: a
    repetition stops at a token that contains one of these texts; an engine takes them as dry_breaker_ids
    (text.dry_breakers makes these). mirostat: version 1 or 2; both hold the surprise of the output near mirostat_tau
    bits, with the learning rate mirostat_eta. They replace top_k, top_p and the like; 0 is off. adaptive_target: prefer
    tokens near this probability; below 0 is off. adaptive_decay: the weight of the history of chosen probabilities.
    samplers: which samplers run and in what order, as in llama.cpp; None is this engine's own order.
    """

    typical_p: float = 1.0
    top_n_sigma: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = ("\n", ":", '"', "*")
    dry_breaker_ids: frozenset[int] = frozenset()
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0
    adaptive_decay: float = 0.9
    samplers: tuple[str, ...] | None = None

    @property
    def narrows(self) -> bool:
        """Whether anything other than temperature, top_k, top_p and min_p decides which token is drawn."""
        sets = self.typical_p < 1.0 or self.top_n_sigma > 0.0 or self.xtc_probability > 0.0
        return sets or self.dynatemp_range > 0.0 or self.remembers or self.samplers is not None

    @property
    def remembers(self) -> bool:
        """Whether these parameters use a sampler with a state (mirostat or adaptive_target): its choice of a token
        depends on the probabilities of the tokens chosen earlier."""
        return self.mirostat != 0 or self.adaptive_target >= 0.0

    @property
    def repeats_cost(self) -> bool:
        """Whether DRY is on, so that a token that continues a repetition may get a lower logit."""
        return self.dry_multiplier > 0.0 and self.dry_penalty_last_n != 0


FIELD_NAMES = tuple(each.name for each in fields(SamplerFields) if each.name != "dry_breaker_ids")
"""The names of fields that a request may use."""
DEFAULTS: Mapping[str, Any] = {each.name: each.default for each in fields(SamplerFields)}


def sampler_names(name: str, value: Any) -> tuple[str, ...]:
    """Returns the names of samplers, as in llama.cpp. Raises InvalidRequest where a name is unknown or stands twice."""
    found = tuple(_OTHER_NAMES.get(each, each) for each in texts(name, value))
    for each in found:
        if each not in SAMPLERS:
            raise InvalidRequest(
                f"{name} names {each[:60]!r}, which is no sampler here.",
                param=name,
                fix=f"Use some of {', '.join(SAMPLERS)}.",
            )
    if len(set(found)) < len(found):
        raise InvalidRequest(f"{name} names a sampler twice.", param=name, fix="Name each once.")
    return found


def _ids(name: str, value: Any) -> frozenset[int]:
    return value if isinstance(value, frozenset) else frozenset(whole_numbers(name, value))


def left_out(order: Sequence[str]) -> dict[str, float]:
    """Returns the fields that turn off all samplers that `order` does not name."""
    return {field: value for name, off in _OFF.items() if name not in order for field, value in off.items()}


KINDS: tuple[tuple[tuple[str, ...], Callable[[str, Any], Any]], ...] = (
    (("dry_allowed_length", "dry_penalty_last_n", "mirostat"), whole_number),
    (
        (
            *("typical_p", "top_n_sigma", "dynatemp_range", "dynatemp_exponent", "xtc_probability", "xtc_threshold"),
            *("dry_multiplier", "dry_base", "mirostat_tau", "mirostat_eta", "adaptive_target", "adaptive_decay"),
        ),
        number,
    ),
    (("dry_sequence_breakers",), texts),
    (("dry_breaker_ids",), _ids),
    (("samplers",), sampler_names),
)
RANGES: Mapping[str, tuple[float, float]] = {
    "typical_p": (0, 1),
    "top_n_sigma": (-1, 1000),
    "dynatemp_range": (0, MOST_EXPONENT),
    "dynatemp_exponent": (0, MOST_EXPONENT),
    "xtc_probability": (0, 1),
    "xtc_threshold": (0, 1),
    "dry_multiplier": (0, 100),
    "dry_base": (1, 100),
    "dry_allowed_length": (0, math.inf),
    "dry_penalty_last_n": (-1, math.inf),
    "mirostat": (0, MIROSTAT_2),
    "mirostat_tau": (0, 100),
    "mirostat_eta": (0, 1),
    "adaptive_target": (-1, 1),
    "adaptive_decay": (0, 0.99),
}


def check_samplers(params: SamplerFields) -> None:
    """Checks the rules that no range of a single field expresses. Raises InvalidRequest."""
    if params.mirostat and params.adaptive_target >= 0.0:
        raise InvalidRequest(
            "mirostat and adaptive_target cannot both be asked for.",
            param="adaptive_target",
            why="Each of them chooses the token alone.",
            fix="Send one of them.",
        )
    if len(params.dry_sequence_breakers) > MAX_BREAKERS:
        raise InvalidRequest(
            f"dry_sequence_breakers has more than {MAX_BREAKERS} texts.", param="dry_sequence_breakers"
        )
    if any(not each or len(each) > MAX_BREAKER_CHARACTERS for each in params.dry_sequence_breakers):
        raise InvalidRequest(
            f"dry_sequence_breakers holds an empty text, or one longer than {MAX_BREAKER_CHARACTERS} characters.",
            param="dry_sequence_breakers",
        )
    _check_order(params)


def _check_order(params: SamplerFields) -> None:
    order = params.samplers
    if order is None:
        return
    if params.mirostat:
        raise InvalidRequest(
            "samplers and mirostat cannot both be asked for.",
            param="samplers",
            why="Mirostat takes the place of the other samplers.",
            fix="Send one of them.",
        )
    sets = [each for each in order if each not in OF_LOGITS]
    if tuple(order[: len(order) - len(sets)]) != tuple(each for each in order if each in OF_LOGITS):
        raise InvalidRequest(
            "samplers has penalties or dry after a sampler that leaves out tokens.",
            param="samplers",
            why="This engine changes logits first.",
            fix="Put penalties and dry at the beginning.",
        )
    if ADAPTIVE in sets[:-1]:
        raise InvalidRequest(
            "samplers has adaptive_p before another sampler.",
            param="samplers",
            why="It chooses the token.",
            fix="Put it at the end.",
        )
