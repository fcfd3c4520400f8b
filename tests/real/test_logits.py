"""Logits of published weights in float32 are those of transformers, from the file and from a folder made of it.

The token ids are those of a text. Its first token has activations hundreds of times larger than the others, which
random weights never have.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import judged
from tests.models.parity import BAR, PHASES, TOKENS, WHOLE, Loaded, other_tokens, relative_error
from tests.real import sketch
from tests.real.packages import MINILM, SMOL
from tests.tiers import TIER, levels
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
Judges = Callable[[Path], Any]
JUDGE = Path(__file__).with_name("judge.py")
PARTS = {name: PHASES[name] for name in ("prefill", "chunked")}


@pytest.fixture(scope="module")
def ops() -> Iterator[CpuOps]:
    made = CpuOps(levels()[-1], 2)
    yield made
    made.close()


@pytest.fixture(scope="module")
def judge_of(tmp_path_factory: pytest.TempPathFactory) -> Judges:
    """The judge of a file, made once."""
    from tests.real.judge import judge_of_file

    return cache(lambda file: judge_of_file(file, tmp_path_factory.mktemp("judge")))


def unfolded(file: Path) -> Path:
    return unfold(file, read_machine().cache_folder)


def ids_of(folder: Path) -> list[int]:
    found = Tokenizer.from_folder(folder).encode_prompt(TEXT)[:TOKENS]
    assert len(found) == TOKENS
    return list(found)


def check(folder: Path, judge: Any, token_ids: list[int], ops: CpuOps) -> None:
    from tests.real.judge import logits

    expected, model = logits(judge, token_ids), Loaded(folder, ops)
    for name, chunks in PARTS.items():
        found = model.run(token_ids, chunks)
        assert relative_error(found, expected) < BAR, name
        assert other_tokens(found, expected) == 0, name


def check_as_folder(file: Path, judges: Judges, place: Path, ops: CpuOps) -> None:
    from tests.real.judge import as_folder

    check(place, as_folder(judges(file), place), ids_of(unfolded(file)), ops)


@pytest.mark.slow
def test_smollm2_as_a_file(smol_file: Path, tmp_path: Path, ops: CpuOps) -> None:
    folder = unfolded(smol_file)
    ids, model = ids_of(folder), Loaded(folder, ops)

    def ask() -> dict[str, Any]:
        from tests.real.judge import judge_of_file, logits

        expected = logits(judge_of_file(smol_file, tmp_path), ids)
        for chunks in PARTS.values() if TIER.daily else ():
            found = model.run(ids, chunks)
            assert relative_error(found, expected) < BAR and other_tokens(found, expected) == 0
        return sketch.sketch(expected)

    facts = (SMOL.checked, JUDGE, Path(sketch.__file__), ids)
    kept = judged.said("logits: SmolLM2 as a file", facts, ask, sketch.same)
    for name, chunks in PARTS.items():
        assert sketch.differences(model.run(ids, chunks), kept) == [], name


def test_a_sketch_knows_other_logits() -> None:
    """It finds an error of a hidden state, an error in a row of the head, and other tokens, but no rounding error."""
    rng = np.random.default_rng(3)
    states, head = rng.standard_normal((9, 64), np.float32), rng.standard_normal((30_000, 64), np.float32)
    rows, width = states @ head.T, head.shape[0]
    kept, span = sketch.sketch(rows), float(np.ptp(states @ head.T))
    near = rows + rng.uniform(-1e-5, 1e-5, rows.shape).astype(np.float32) * span
    assert sketch.differences(near, kept) == [] and sketch.same(kept, sketch.sketch(near))
    turned = (states + np.float32(1e-3) * rng.standard_normal(states.shape, np.float32)) @ head.T
    one_row, swapped = rows.copy(), rows.copy()
    one_row[:, width // 2] -= np.float32(0.03) * span
    swapped[2, np.argsort(rows[2])[-2:]] = swapped[2, np.argsort(rows[2])[-2:][::-1]]
    for other in (turned, one_row, swapped):
        assert sketch.differences(other, kept) and not sketch.same(kept, sketch.sketch(other))


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
    import torch
    import transformers

    judge = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return judge(torch.tensor([token_ids])).last_hidden_state[0].numpy()


def check_minilm(found: np.ndarray, folder: Path, token_ids: list[int]) -> None:
    def ask() -> dict[str, Any]:
        expected = rows_of_minilm(folder, token_ids)
        assert relative_error(found, expected) < BAR
        return sketch.sketch(expected)

    source = inspect.getsource(rows_of_minilm), Path(sketch.__file__)
    facts = (MINILM.checked, folder / "config.json", *source, token_ids)
    assert sketch.differences(found, judged.said("states: MiniLM", facts, ask, sketch.same)) == []


def test_minilm_as_a_folder(minilm_folder: Path, ops: CpuOps) -> None:
    token_ids = ids_of(minilm_folder)
    check_minilm(Loaded(minilm_folder, ops).run(token_ids, PHASES[WHOLE]), minilm_folder, token_ids)


def test_minilm_as_a_file(minilm_folder: Path, ops: CpuOps, tmp_path: Path) -> None:
    """The file's weights are not rounded, so that the folder's judge judges it too."""
    exact = GgufMix("F32", 0, "F32", "F32")
    file = write_folder(minilm_folder, tmp_path / "file", exact, "minilm", no_progress)
    folder = unfold(file, tmp_path / "cache")
    token_ids = ids_of(minilm_folder)
    assert ids_of(folder) == token_ids
    check_minilm(Loaded(folder, ops).run(token_ids, PHASES[WHOLE]), minilm_folder, token_ids)
