"""Short names, references and the choice of a quantization, which are functions of names alone."""

from __future__ import annotations

import pytest

from twostroke.weights.gguf.families.table import FAMILIES
from twostroke.weights.gguf.quants import usual
from twostroke.weights.hub.reference import reference_of
from twostroke.weights.store.table import near_names, row_of, rows


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("llama3.2:1b", "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"),
        ("LLAMA3.2:1B", "unsloth/Llama-3.2-1B-Instruct-GGUF:Q4_K_M"),
        ("llama3.2", "unsloth/Llama-3.2-3B-Instruct-GGUF"),
        ("llama3.2:latest", "unsloth/Llama-3.2-3B-Instruct-GGUF"),
        ("bge-m3", "ggml-org/bge-m3-Q8_0-GGUF"),
        ("acme/tiny", "acme/tiny"),
        ("acme/tiny:Q4_0", "acme/tiny:Q4_0"),
        ("acme/tiny:latest", "acme/tiny"),
        ("acme/tiny@v1", "acme/tiny@v1"),
        ("hf.co/acme/tiny:Q4_0@v1", "acme/tiny:Q4_0@v1"),
        ("https://huggingface.co/acme/tiny/", "acme/tiny"),
        ("https://www.huggingface.co/acme/tiny/tree/main", "acme/tiny"),
        ("https://huggingface.co/acme/tiny/tree/v1", "acme/tiny@v1"),
        ("https://huggingface.co/acme/tiny/resolve/main/q/a.gguf", "acme/tiny:q/a.gguf"),
    ],
)
def test_what_a_name_means(name: str, text: str) -> None:
    found = reference_of(name)
    assert found is not None and found.text == text


@pytest.mark.parametrize("name", ["", "tiny", "a/b/c", "acme/", "/tiny", "acme/..", "./tiny", "~/tiny", "llama3.2:9b"])
def test_names_that_mean_no_repository(name: str) -> None:
    assert reference_of(name) is None


def test_every_row_is_of_a_family_that_runs_and_its_name_means_itself() -> None:
    for name, row in rows().items():
        assert row.family in FAMILIES and row.task in ("chat", "embed", "rerank"), name
        assert row_of(name) == row and reference_of(row.reference) is not None
        assert name == name.lower() and "/" not in name


def test_a_misspelt_name_has_neighbours() -> None:
    assert "llama3.2:1b" in near_names("lama3.2:1b")
    assert near_names("mine:1b", ("mine:2b",))[0] == "mine:2b"


FILES = ["a-Q2_K.gguf", "a-Q4_K_M.gguf", "a-Q8_0.gguf"]


@pytest.mark.parametrize(
    ("repo", "names", "file"),
    [
        ("acme/Tiny-8B-GGUF", FILES, "a-Q4_K_M.gguf"),
        ("acme/Tiny-1B-GGUF", FILES, "a-Q8_0.gguf"),
        ("acme/tiny-270m-GGUF", FILES, "a-Q8_0.gguf"),
        ("acme/tiny-1.2B-GGUF", FILES, "a-Q4_K_M.gguf"),
        ("acme/tiny-E4B-it", FILES, "a-Q4_K_M.gguf"),
        ("acme/Tiny-Embedding-4B", FILES, "a-Q8_0.gguf"),
        ("acme/tiny-reranker-v2", FILES, "a-Q8_0.gguf"),
        ("acme/gpt-oss-20b", ["a-Q4_K_M.gguf", "a-MXFP4.gguf"], "a-MXFP4.gguf"),
        ("acme/Tiny-8B", ["a-IQ1_S.gguf", "a-UD-Q4_K_XL.gguf"], "a-UD-Q4_K_XL.gguf"),
        ("acme/Tiny-8B", ["a-Q2_K.gguf"], "a-Q2_K.gguf"),
    ],
)
def test_the_usual_quantization(repo: str, names: list[str], file: str) -> None:
    assert usual(names, repo) == file
