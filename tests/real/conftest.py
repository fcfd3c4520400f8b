"""Fixtures with published weights. A test whose files are not here is skipped; the run's last lines report it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.real.packages import CODER, GEMMA, MARK, MINILM, SMOL, TRL, NotHere, Published, file_of


def had(model: Published) -> Path:
    """The package's checked file. The test is skipped where it is missing."""
    try:
        return file_of(model)
    except NotHere as error:
        pytest.skip(f"{MARK}{error}")


@pytest.fixture(scope="session")
def smol_file() -> Path:
    """SmolLM2-135M-Instruct as GGUF (Q4_1)."""
    return had(SMOL)


@pytest.fixture(scope="session")
def gemma_file() -> Path:
    """Gemma 3 270M as GGUF (Q4_K_M)."""
    return had(GEMMA)


@pytest.fixture(scope="session")
def coder_file() -> Path:
    """Qwen2.5-Coder 1.5B Instruct as GGUF (Q4_K_M)."""
    return had(CODER)


@pytest.fixture(scope="session")
def minilm_folder() -> Path:
    """all-MiniLM-L6-v2 as a folder."""
    return had(MINILM).parent


@pytest.fixture(scope="session")
def published_templates() -> dict[str, str]:
    """Name -> chat template of a published model, from the wheel of trl, whose checksum is pinned."""
    return {file.stem: file.read_text() for file in sorted(had(TRL).parent.glob("*.jinja"))}
