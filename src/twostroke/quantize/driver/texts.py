"""The text that a model is calibrated with: token ids in sequences of equal length, some of them held out for the
report."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from twostroke.assets import calibration_text
from twostroke.ops.operands import I32Array
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError

LEAST_TOKENS = 2048
"""The fewest tokens of a text. Fewer are not enough: the second moments of a thousand channels need some thousand
inputs.
"""
LENGTHS = (512, 256, 128)
LEAST_RUNS = 8
HELD_OUT_SHARE = 8
"""One of every HELD_OUT_SHARE sequences of the text is not used for calibration, but held out to measure the result."""
MOST_HELD_OUT = 16
MOST_BYTES = 64 << 20


@dataclass(frozen=True, eq=False, slots=True)
class CalibrationText:
    """The sequences of a text. used: those for calibration. held_out: those that measure the result. Both are
    (sequences, tokens) int32. digest: a digest of the ids, by which an interrupted job finds that the text is the
    same."""

    used: I32Array
    held_out: I32Array
    digest: str


def read_texts(file: Path | None, tokenizer: Tokenizer, max_positions: int, most_tokens: int) -> CalibrationText:
    """Returns the token ids of a file of UTF-8 text, or of the text in this package where `file` is None.

    Raises ConfigError where the file cannot be read or the text is too short.

    most_tokens: the most tokens for calibration; the held-out tokens come in addition.
    """
    text = calibration_text() if file is None else _read(file)
    ids = np.array(tokenizer.encode_rendered(text), np.int32)
    if len(ids) < LEAST_TOKENS:
        raise ConfigError(
            f"The calibration text has {len(ids):,} tokens.",
            why=f"At least {LEAST_TOKENS:,} are needed to know the inputs of each product.",
            fix="Give --text a longer file, or leave it out: a text is embedded.",
        )
    fitting = [length for length in LENGTHS if length <= max_positions and len(ids) >= LEAST_RUNS * length]
    length = fitting[0] if fitting else min(LENGTHS[-1], max_positions)
    runs = ids[: len(ids) // length * length].reshape(-1, length)
    wanted = -(-most_tokens // length)
    held = min(MOST_HELD_OUT, max(1, min(len(runs), wanted) // HELD_OUT_SHARE))
    chosen = np.linspace(0, len(runs) - 1, held + 1).astype(np.int64)[1:]
    is_held = np.zeros(len(runs), bool)
    is_held[chosen] = True
    others = np.flatnonzero(~is_held)
    if len(others) > wanted:
        others = others[np.linspace(0, len(others) - 1, wanted).astype(np.int64)]
    used, held_out = runs[others], runs[is_held]
    digest = hashlib.blake2b(used.tobytes() + b"|" + held_out.tobytes(), digest_size=16).hexdigest()
    return CalibrationText(used, held_out, digest)


def _read(file: Path) -> str:
    try:
        raw = file.read_bytes()[: MOST_BYTES + 1]
    except OSError as error:
        raise ConfigError(
            f"--text {file} cannot be read.", why=f"{error.strerror or error}.", fix="Name a file of plain text."
        ) from None
    if len(raw) > MOST_BYTES:
        raise ConfigError(
            f"--text {file} has more than {MOST_BYTES >> 20} MB.",
            why="A few hundred kB are enough for calibration.",
            fix="Give a part of it, from several places.",
        )
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"--text {file} is no text: byte {error.start} is not UTF-8.", fix="Name a file of plain text in UTF-8."
        ) from None
