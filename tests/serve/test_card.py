"""The card of a served model tells lists of models the format of its files."""

from __future__ import annotations

from pathlib import Path

import pytest

from twostroke.server.card import card_of
from twostroke.weights.gguf.container import GgufHeader
from twostroke.weights.hub.hub import ModelFolder


class _Model:
    def parameters(self) -> int:
        return 135_000_000


@pytest.mark.parametrize(
    ("header", "weights", "file", "quantization"),
    [
        (None, "int8", "safetensors", "INT8"),
        ({"general.file_type": 15}, "stored", "gguf", "Q4_K_M"),
        ({"general.file_type": 15}, "int8", "gguf", "INT8"),
        ({}, "stored", "gguf", "STORED"),
    ],
)
def test_format_of_the_files_and_of_the_weights(
    tmp_path: Path, header: dict[str, object] | None, weights: str, file: str, quantization: str
) -> None:
    headers = () if header is None else (GgufHeader(b"", header, {}),)  # type: ignore[arg-type]
    card = card_of(ModelFolder(tmp_path, "name", None, headers), "name", weights, _Model(), 7)
    assert (card.file, card.quantization, card.weights) == (file, quantization, weights)
    assert (card.parameter_size, card.num_bytes, card.family) == ("135M", 7, "")
