"""The engine with a checkpoint's own layer that predicts a further token has the same bits as without. Checkpoints
without such a layer are refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from tests.speculate.heads.predicted import FILE, add_layers
from tests.speculate.test_real_engine import AllOfThem
from twostroke import LLM
from twostroke.assets import spark_path
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

TEXTS = ("The cache holds pages of sixteen positions.", "A state", "The cache holds pages of sixteen positions, and")
SMALL = {"weights": "int8", "context": 256, "max_sequences": 4, "threads": 2}
KINDS = {
    "greedy": {"temperature": 0.0},
    "sampled": {"temperature": 1.0, "seed": 5, "logprobs": 2},
    "three tokens": {"temperature": 1.0, "seed": 3, "allowed_token_ids": (300, 301, 302)},
    "penalties": {"temperature": 0.7, "seed": 3, "repetition_penalty": 1.3, "frequency_penalty": 0.5},
}


def folder_of(family: str, folder: Path, layers: int | None = None) -> Path:
    """A random checkpoint with the layers and the embedded model's tokenizer."""
    vocabulary = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    write_random({**config_of(family), **special, "vocab_size": vocabulary}, folder)
    shutil.copy(spark_path() / "tokenizer.json", folder / "tokenizer.json")
    add_layers(folder, **({} if layers is None else {"num_nextn_predict_layers": layers}))
    return folder


MODELS = (
    ("deepseek-v3", None),
    ("deepseek-v3", 3),
    ("glm-4.5", None),
    ("glm-4.5", 2),
    ("qwen3-next", None),
)


@pytest.fixture(scope="module", params=MODELS, ids=lambda each: f"{each[0]}-{each[1] or 1}")
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    folder = folder_of(request.param[0], tmp_path_factory.mktemp("predicts"), request.param[1])
    with LLM(str(folder), speculate="mtp", **SMALL) as made:
        made._built.guesser._limiter = AllOfThem(made._built.guesser._limiter.times)
        yield made


def found(llm: LLM, params: SamplingParams, way: str) -> list[Any]:
    encoded = [tuple(llm._built.tokenizer.encode_prompt(text)) for text in TEXTS]
    outputs = llm.engine.generate([Prompt(text, params, speculate=way) for text in encoded])
    return [(each.completions[0].token_ids, each.completions[0].logprobs) for each in outputs]


@pytest.mark.parametrize("kind", KINDS)
def test_a_predicting_layer_gives_the_same_bits(llm: LLM, kind: str) -> None:
    params, totals = SamplingParams(max_tokens=40, **KINDS[kind]), llm._built.guesser.totals
    before = totals.guessed
    assert found(llm, params, "mtp") == found(llm, params, "off")
    assert totals.guessed > before
    if kind == "three tokens":
        assert totals.accepted > 0
    assert llm._built.cache.pages_used == 0
    llm._built.cache.check()


def test_a_checkpoint_without_the_layer_is_refused_by_its_tensor(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mtp is not possible: Llama.* has no layer that predicts"):
        LLM("spark", speculate="mtp")
    folder = folder_of("glm-4.5", tmp_path)
    kept = {name: array for name, array in load_file(folder / FILE).items() if "eh_proj" not in name}
    save_file(kept, folder / FILE)
    with pytest.raises(ConfigError, match=r"mtp: the tensor model\.layers\.\d\.eh_proj\.weight is missing"):
        LLM(str(folder), speculate="mtp")


def test_a_config_that_counts_no_layer_is_refused(tmp_path: Path) -> None:
    folder = folder_of("deepseek-v3", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_nextn_predict_layers": 0}))
    with pytest.raises(ConfigError, match="has no layer that predicts"):
        LLM(str(folder), speculate="mtp")


def test_a_request_for_mtp_needs_an_engine_that_has_it() -> None:
    with LLM("spark", context=128) as plain, pytest.raises(InvalidRequest, match="--speculate mtp, or leave it out"):
        plain.engine.generate([Prompt((5, 6, 7), SamplingParams(max_tokens=2), speculate="mtp")])
