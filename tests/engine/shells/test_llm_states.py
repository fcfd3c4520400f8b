"""The whole engine on random models with states, from a folder: alone, together, with several completions,
continued."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from tests.speculate.test_real_engine import AllOfThem
from twostroke.assets import spark_path
from twostroke.llm import LLM
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
PROMPTS = ["The cache holds pages of sixteen positions.", "A state", "The cache holds pages of sixteen positions, and"]


def folder_of(family: str, folder: Path) -> Path:
    """A random checkpoint of the family with the embedded model's tokenizer."""
    vocabulary = json.loads((spark_path() / "config.json").read_text())["vocab_size"]
    config = config_of(family)
    special = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
    write_random({**config, **special, "vocab_size": vocabulary}, folder)
    for name in TOKENIZER:
        if (spark_path() / name).is_file():
            shutil.copy(spark_path() / name, folder / name)
    return folder


@pytest.mark.parametrize("family", ["mamba2", "mamba-odd-sizes", "lfm2-biased", "qwen3-next"])
def test_generate_gives_the_same_together_and_alone(family: str, tmp_path: Path) -> None:
    params = SamplingParams(temperature=1.0, max_tokens=20, seed=7, n=3, logprobs=1)
    options = {"weights": "f32", "kv_format": "f32", "threads": 2, "context": 128, "max_sequences": 4}
    with LLM(str(folder_of(family, tmp_path)), **options) as llm:
        together = llm.generate(PROMPTS, params)
        again = [llm.generate(prompt, params)[0] for prompt in PROMPTS]
    for first, second in zip(together, again, strict=True):
        found = [tuple(each.token_ids) for each in first.completions]
        assert found == [tuple(each.token_ids) for each in second.completions]
        assert len(found) == 3 and len(set(found)) > 1


@pytest.mark.parametrize("family", ["mamba2", "falcon-h1", "qwen3-next"])
def test_guesses_give_the_same_with_states(family: str, tmp_path: Path) -> None:
    three = (300, 301, 302)  # random texts that repeat these three tokens, so that some guesses are right
    params = SamplingParams(temperature=1.0, seed=3, max_tokens=60, logprobs=1, allowed_token_ids=three)
    options = {"weights": "int8", "threads": 1, "context": 256, "max_sequences": 4, "speculate": "suffix"}
    with LLM(str(folder_of(family, tmp_path)), **options) as llm:
        guesser = llm._built.guesser
        guesser._limiter = AllOfThem(guesser._limiter.times)
        texts = [tuple(llm._built.tokenizer.encode_prompt(text)) for text in PROMPTS]
        found = [
            [
                (each.completions[0].token_ids, each.completions[0].logprobs)
                for each in llm.engine.generate([Prompt(text, params, speculate=way) for text in texts])
            ]
            for way in ("off", "suffix", "suffix")
        ]
        assert found[0] == found[1] == found[2]
        assert guesser.totals.guessed > guesser.totals.accepted > 0
        assert llm._built.cache.pages_used == 0
        llm._built.cache.check()
