"""Chooses a quantization of a repository where the user names none."""

from __future__ import annotations

import re
from collections.abc import Sequence

from twostroke.weights.gguf.file_names import quant_of

USUAL = ("Q4_K_M", "UD-Q4_K_M", "UD-Q4_K_XL", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0")
"""The quantizations in the order in which they are tried where none is asked for."""
SMALL = ("Q8_0", "UD-Q8_K_XL", *USUAL)
"""The order in which quantizations are tried for models that lose too much quality in four bits: small models, and
models whose answer is a vector or a score."""
SMALL_BILLIONS = 1.0
_SIZE = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])")
_TO_VECTORS = re.compile(r"embed|rerank|bge-|minilm|e5-", re.IGNORECASE)


def usual(names: Sequence[str], repo_id: str) -> str:
    """Returns the file to take where no quantization is asked for. names: the files of whole models, at least one.
    repo_id: the name from which the model's size and task are guessed."""
    order = SMALL if _is_small(repo_id) else USUAL
    if "gpt-oss" in repo_id.lower():
        order = ("MXFP4", *order)
    for quant in order:
        found = [name for name in names if quant_of(name) == quant]
        if found:
            return found[0]
    return names[0]


def _is_small(repo_id: str) -> bool:
    size = _SIZE.search(repo_id)
    if _TO_VECTORS.search(repo_id):
        return True
    if size is None:
        return False
    return float(size[1]) / (1 if size[2] in "Bb" else 1000) <= SMALL_BILLIONS
