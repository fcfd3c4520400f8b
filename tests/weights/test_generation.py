"""generation_config.json as transformers writes it, as publishers write it, and with errors."""

from __future__ import annotations

import json

import pytest

from tests import kept
from tests.weights.gguf.files import number, raw, string
from twostroke.types.errors import CorruptModel
from twostroke.types.sampling.sampling_params import SamplingParams
from twostroke.weights.generation import GenerationDefaults, read_generation_defaults
from twostroke.weights.gguf.container import open_split
from twostroke.weights.gguf.sampling import sampling_of


def read(folder, **members):
    (folder / "generation_config.json").write_text(json.dumps(members))
    return read_generation_defaults(folder)


def test_no_file_means_no_defaults(tmp_path):
    assert read_generation_defaults(tmp_path) == GenerationDefaults()
    assert dict(read_generation_defaults(tmp_path).sampling) == {}


def test_what_the_file_says_and_nothing_else(tmp_path):
    found = read(tmp_path, do_sample=True, temperature=0.6, top_p=0.9, eos_token_id=[128001, 128009], bos_token_id=1)
    assert found.eos_token_ids == (128001, 128009)
    assert dict(found.sampling) == {"temperature": 0.6, "top_p": 0.9}
    assert SamplingParams(**found.sampling).temperature == 0.6
    assert read(tmp_path, eos_token_id=2).eos_token_ids == (2,)
    assert dict(read(tmp_path, top_k=-1, min_p=0.05, repetition_penalty=1.05).sampling) == {
        "top_k": 0, "min_p": 0.05, "repetition_penalty": 1.05,
    }  # fmt: skip


def test_do_sample_false_means_greedy(tmp_path):
    found = read(tmp_path, do_sample=False, temperature=0.7, top_k=20, top_p=0.8, repetition_penalty=1.1)
    assert dict(found.sampling) == {"repetition_penalty": 1.1}


def of_transformers(folder):
    import transformers

    said = {"do_sample": True, "temperature": 0.7, "top_k": 20, "eos_token_id": [5, 6]}
    transformers.GenerationConfig(**said).save_pretrained(folder)
    return {}


def test_what_transformers_writes(tmp_path):
    kept.made(["do_sample, 0.7, 20, [5, 6] of GenerationConfig"], of_transformers).unpack(tmp_path)
    found = read_generation_defaults(tmp_path)
    assert found.eos_token_ids == (5, 6)
    assert found.sampling["temperature"] == 0.7 and found.sampling["top_k"] == 20


@pytest.mark.parametrize(
    "members",
    [{"temperature": -1}, {"temperature": "hot"}, {"top_p": 1.5}, {"top_k": 0.5}, {"eos_token_id": ["</s>"]},
     {"repetition_penalty": 0}, {"do_sample": 1}, {"min_p": float("nan")}],
)  # fmt: skip
def test_impossible_values_name_the_field(members, tmp_path):
    with pytest.raises(CorruptModel, match=r"generation_config\.json"):
        read(tmp_path, **members)


def test_a_gguf_file_says_it_by_keys_of_its_own(tmp_path):
    numbers = {"temp": (6, 0.6), "top_k": (5, 20), "top_p": (6, 0.95), "min_p": (6, 0.0), "penalty_repeat": (6, 1.05)}
    keys = [(f"general.sampling.{name}", number(*value)) for name, value in numbers.items()]
    keys += [("general.sampling.mirostat", number(5, 2)), ("general.name", string("m"))]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw(keys))
    (file,) = open_split(path).values()
    asked = sampling_of(file.values)
    file.close()
    expected = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.05}
    assert asked == expected
    assert dict(read(tmp_path, eos_token_id=2, **asked).sampling) == expected
    assert sampling_of({"general.sampling.temp": "warm", "general.sampling.top_k": True}) == {}
