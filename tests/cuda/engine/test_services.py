"""The other services of an engine on the emulated device: adapters, beams, several answers, prompts' log probabilities,
embeddings and scores. They equal those of the CPU, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.adapters.random_lora import write_random_lora
from tests.cuda.emulator.fake import controls, same_level
from tests.retrieval.folders import with_sentence_files, write_encoder
from tests.serve.harness import serving
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.runner.folder import read_folder
from twostroke.server.build import build_server

SMALL = {
    "context": "128",
    "max_step_tokens": "48",
    "max_sequences": "4",
    "kv_memory": "2MB",
    "weights": "int8",
    "kv_format": "bf16",
}
PROMPT = "What is a page?"
TEXTS = ["decode reads one token at a time", "a page", "what is a page of the cache " * 4]

pytestmark = pytest.mark.usefixtures("fake")


@pytest.fixture
def places() -> list[dict[str, str]]:
    """Options of both places, which must give the same bits."""
    level = same_level()
    if level is None:
        pytest.skip("this CPU has no level with fused multiply-add: nothing has the bits of the kernels")
    return [{"device": "cuda"}, {"cpu_level": level}]


def adapter(folder: Path) -> Path:
    return write_random_lora(folder, read_folder(spark_path()), ("q_proj", "o_proj", "down_proj"), seed=1)


def test_adapters_beams_and_several_answers(places: list[dict[str, str]], tmp_path: Path) -> None:
    lora, found = adapter(tmp_path / "a"), []
    kinds = (
        SamplingParams(temperature=0.0, max_tokens=5, logprobs=2, prompt_logprobs=3),
        SamplingParams(temperature=1.0, seed=4, n=2, best_of=3, max_tokens=4),
        SamplingParams(use_beam_search=True, n=2, max_tokens=4),
        SamplingParams(use_beam_search=True, n=2, max_tokens=3, logit_bias={5: 2.0}),
    )
    for place in places:
        with LLM("spark", adapter={"a": str(lora)}, **place, **SMALL) as llm:
            answers: list[Any] = []
            for name in (None, "a"):
                made = llm.generate([PROMPT] * len(kinds), list(kinds), adapter=name)
                answers += [
                    (each.prompt_logprobs, [(one.token_ids, one.logprobs, one.score) for one in each.completions])
                    for each in made
                ]
            found.append(answers)
    assert found[0] == found[1]
    assert found[0][0] != found[0][len(kinds)], "the adapter changed nothing"
    assert controls().fake_used() == 0


def test_embeddings_and_scores(places: list[dict[str, str]], tmp_path: Path) -> None:
    for family, folder in (("bert", tmp_path / "e"), ("bert-classifier", tmp_path / "r")):
        write_encoder(folder, family)
    with_sentence_files(tmp_path / "e", {"pooling_mode_mean_tokens": True})
    options = {"max_sequences": "4", "kv_memory": "2MB", "weights": "int8", "kv_format": "bf16"}
    vectors, scores = [], []
    for place in places:
        with LLM(str(tmp_path / "e"), **place, **options) as llm:
            vectors.append(llm.embed(TEXTS))
        with LLM(str(tmp_path / "r"), **place, **options) as llm:
            scores.append((llm.score("a page", TEXTS), llm.rerank("one", TEXTS, top_n=2)))
    assert np.array_equal(*vectors) and np.isfinite(vectors[0]).all()
    assert scores[0] == scores[1]
    assert controls().fake_used() == 0


@pytest.mark.daily
def test_a_server_with_adapters_guesses_by_itself(places: list[dict[str, str]], tmp_path: Path) -> None:
    lora, texts = adapter(tmp_path / "a"), []
    for place in places:
        options = {**SMALL, **place, "speculate": "auto", "adapter": {"a": lora}, "adapter_folder": tmp_path}
        with build_server("spark", options) as built, serving(built.parts) as live:
            load = {"lora_name": "b", "lora_path": "a"}
            assert live.post("/v1/load_lora_adapter", load).status == 200
            asked = {"prompt": "one two one two one two", "max_tokens": 6, "temperature": 0.0, "logprobs": 1}
            answers = [live.post("/v1/completions", {**asked, "model": name}).json for name in ("spark", "a", "b")]
            texts.append([each["choices"][0] for each in answers])
    assert texts[0] == texts[1] and texts[0][1]["text"] == texts[0][2]["text"]
