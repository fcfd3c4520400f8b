"""Logits of published weights in float32 are those of transformers, from the file and from a folder made of it.

The token ids are those of a text: the first of them has activations hundreds of times larger than the others, which no
random weights have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.models.parity import BAR, PHASES, TOKENS, WHOLE, Loaded, other_tokens, relative_error
from tests.real.judge import as_folder, judge_of_file, logits
from tests.tiers import levels
from twostroke.assembly.settings.env import read_machine
from twostroke.backends.cpu import CpuOps
from twostroke.quantize.driver.calibrate import no_progress
from twostroke.quantize.gguf.write import GgufMix, write_folder
from twostroke.text.tokenizer import Tokenizer
from twostroke.weights.gguf.unfold import unfold

TEXT = (
    "The ferry leaves the harbour at a quarter past seven, and those who miss it wait until noon. On the pier a "
    "man sells coffee from a cart; he knows every captain by name. When the fog comes in from the sea, the bell "
    "on the breakwater rings twice a minute. Nobody remembers who hung it there, though the town's oldest book "
    "has a drawing of it from 1788, with three boats and a dog beneath it."
)
Judges = Callable[[Path], transformers.PreTrainedModel]
PARTS = {name: PHASES[name] for name in ("prefill", "chunked")}


@pytest.fixture(scope="module")
def ops() -> Iterator[CpuOps]:
    made = CpuOps(levels()[-1], 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def judge_of(tmp_path_factory: pytest.TempPathFactory) -> Judges:
    """The judge of a file, made once."""
    return cache(lambda file: judge_of_file(file, tmp_path_factory.mktemp("judge")))


def unfolded(file: Path) -> Path:
    return unfold(file, read_machine().cache_folder)


def ids_of(folder: Path) -> list[int]:
    found = Tokenizer.from_folder(folder).encode_prompt(TEXT)[:TOKENS]
    assert len(found) == TOKENS
    return list(found)


def check(folder: Path, judge: transformers.PreTrainedModel, token_ids: list[int], ops: CpuOps) -> None:
    expected, model = logits(judge, token_ids), Loaded(folder, ops)
    for name, chunks in PARTS.items():
        found = model.run(token_ids, chunks)
        assert relative_error(found, expected) < BAR, name
        assert other_tokens(found, expected) == 0, name


def check_as_folder(file: Path, judges: Judges, place: Path, ops: CpuOps) -> None:
    check(place, as_folder(judges(file), place), ids_of(unfolded(file)), ops)


@pytest.mark.slow
def test_smollm2_as_a_file(smol_file: Path, judge_of: Judges, ops: CpuOps) -> None:
    folder = unfolded(smol_file)
    check(folder, judge_of(smol_file), ids_of(folder), ops)


@pytest.mark.daily
@pytest.mark.slow
def test_gemma_as_a_file(gemma_file: Path, judge_of: Judges, ops: CpuOps) -> None:
    folder = unfolded(gemma_file)
    check(folder, judge_of(gemma_file), ids_of(folder), ops)


@pytest.mark.daily
def test_smollm2_as_a_folder(smol_file: Path, judge_of: Judges, ops: CpuOps, tmp_path: Path) -> None:
    check_as_folder(smol_file, judge_of, tmp_path, ops)


@pytest.mark.daily
def test_gemma_as_a_folder(gemma_file: Path, judge_of: Judges, ops: CpuOps, tmp_path: Path) -> None:
    check_as_folder(gemma_file, judge_of, tmp_path, ops)


def rows_of_minilm(folder: Path, token_ids: list[int]) -> np.ndarray:
    judge = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return judge(torch.tensor([token_ids])).last_hidden_state[0].numpy()


def test_minilm_as_a_folder(minilm_folder: Path, ops: CpuOps) -> None:
    token_ids = ids_of(minilm_folder)
    found = Loaded(minilm_folder, ops).run(token_ids, PHASES[WHOLE])
    assert relative_error(found, rows_of_minilm(minilm_folder, token_ids)) < BAR


def test_minilm_as_a_file(minilm_folder: Path, ops: CpuOps, tmp_path: Path) -> None:
    """In a file whose weights are not rounded, so that the folder's judge judges it too."""
    exact = GgufMix("F32", 0, "F32", "F32")
    file = write_folder(minilm_folder, tmp_path / "file", exact, "minilm", no_progress)
    folder = unfold(file, tmp_path / "cache")
    token_ids = ids_of(minilm_folder)
    assert ids_of(folder) == token_ids
    found = Loaded(folder, ops).run(token_ids, PHASES[WHOLE])
    assert relative_error(found, rows_of_minilm(minilm_folder, token_ids)) < BAR
