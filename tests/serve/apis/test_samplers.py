"""Samplers by llama.cpp's names on every route: they reach the engine and change the answer, the same way each time."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from ollama import Client
from openai import OpenAI

from tests.serve.fakes import MODEL
from tests.serve.harness import Live, serving
from twostroke import LLM, SamplingParams
from twostroke.cli.main import main
from twostroke.server.api.fields.sampler_fields import AskedSamplers
from twostroke.server.api.responses_request import ResponsesRequest
from twostroke.server.api.schema import ChatRequest, CompletionRequest
from twostroke.server.build import build_server
from twostroke.types.sampling.sampler_fields import FIELD_NAMES

USER = [{"role": "user", "content": "hi"}]
VALUES: dict[str, Any] = {
    "typical_p": 0.7,
    "top_n_sigma": 1.5,
    "dynatemp_range": 0.5,
    "dynatemp_exponent": 2.0,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.2,
    "dry_multiplier": 0.8,
    "dry_base": 2.0,
    "dry_allowed_length": 3,
    "dry_penalty_last_n": -1,
    "dry_sequence_breakers": ["x", "\n"],
    "mirostat": 2,
    "mirostat_tau": 4.0,
    "mirostat_eta": 0.2,
    "adaptive_decay": 0.5,
}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"model": MODEL, "messages": USER},
    "/v1/completions": {"model": MODEL, "prompt": "hi"},
    "/v1/responses": {"model": MODEL, "input": "hi"},
    "/completion": {"prompt": "hi"},
    "/api/generate": {"model": MODEL, "prompt": "hi"},
}
SAMPLERS: list[dict[str, Any]] = [
    {"typical_p": 0.4},
    {"top_n_sigma": 0.8},
    {"dynatemp_range": 1.0},
    {"xtc_probability": 1.0, "xtc_threshold": 0.05},
    {"dry_multiplier": 4.0, "dry_allowed_length": 1, "dry_sequence_breakers": []},
    {"mirostat": 2, "mirostat_tau": 1.0},
    {"adaptive_target": 0.5, "min_p": 0.05},
    {"samplers": ["top_k", "min_p"], "top_k": 3},
]


def test_every_field_is_a_field_of_requests() -> None:
    assert AskedSamplers.__struct_fields__ == FIELD_NAMES
    for kind in (ChatRequest, CompletionRequest, ResponsesRequest):
        assert set(FIELD_NAMES) <= {each.name for each in msgspec.structs.fields(kind)}


@pytest.mark.parametrize("path", ROUTES)
def test_fields_reach_the_engine_by_every_route(path: str, live: Live) -> None:
    for extra in ({}, {"adaptive_target": 0.3, "mirostat": 0}, {"samplers": ["dry", "xtc"], "mirostat": 0}):
        asked = {**VALUES, **extra}
        body = {"options": asked} if path.startswith("/api") else asked
        reply = live.post(path, {**ROUTES[path], **body})
        assert reply.status == 200 and "x-twostroke-ignored-fields" not in reply.headers, reply.json
        seen = live.parts.serving.engine.prompts[-1].params  # type: ignore[attr-defined]
        expected = SamplingParams(**asked)
        assert {name: getattr(seen, name) for name in FIELD_NAMES} == {
            name: getattr(expected, name) for name in FIELD_NAMES
        }


@pytest.mark.parametrize("path", ROUTES)
def test_a_wrong_value_is_one_clear_error(path: str, live: Live) -> None:
    for name, value in (("xtc_probability", 1.5), ("mirostat", 3), ("dry_base", 0.5), ("samplers", ["infill"])):
        body = {"options": {name: value}} if path.startswith("/api") else {name: value}
        reply = live.post(path, {**ROUTES[path], **body})
        assert reply.status == 400 and name in reply.body.decode()


@pytest.fixture(scope="module")
def spark() -> Iterator[Live]:
    options = {"kv_memory": "20MB", "threads": 1, "speculate": "ngram"}
    with build_server("spark", options) as built, serving(built.parts) as live:
        yield live


def test_the_same_seed_gives_the_same_text_on_every_api_alone_and_together(spark: Live) -> None:
    """The plain text routes get the same prompt. All answers are equal, and so are those of eight at a time."""
    prompt, seed, many = "The cache is the cache is the", 7, 24
    with OpenAI(base_url=spark.url + "/v1", api_key="none", max_retries=0) as client:

        def by_openai(fields: dict[str, Any]) -> str:
            made = client.completions.create(
                model="spark", prompt=prompt, max_tokens=many, seed=seed, temperature=1.0, top_p=1.0, extra_body=fields
            )
            return str(made.choices[0].text)

        plain = by_openai({})
        alone = [by_openai(fields) for fields in SAMPLERS]
        assert sum(text != plain for text in alone) >= len(alone) - 1, "one may draw the same tokens by chance"
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(by_openai, SAMPLERS)) == alone
    ollama = Client(host=spark.url)
    for fields, expected in zip(SAMPLERS, alone, strict=True):
        body = {"prompt": prompt, "n_predict": many, "seed": seed, "temperature": 1.0, "top_p": 1.0, **fields}
        made = spark.post("/completion", body).json
        assert made["content"] == expected
        shown = made["generation_settings"]
        assert all(shown[name] == value for name, value in fields.items() if name != "min_p")
        options = {"num_predict": many, "seed": seed, "temperature": 1.0, "top_p": 1.0, **fields}
        assert ollama.generate("spark", prompt, raw=True, options=options).response == expected


def test_python_and_the_command_line_give_that_text_too() -> None:
    prompt = "The cache is the cache is the"
    with LLM("spark", kv_memory="20MB", threads=1) as llm:
        for fields in SAMPLERS[3:6]:
            params = SamplingParams(temperature=1.0, seed=7, max_tokens=12, **fields)
            expected = llm.generate(prompt, params)[0].text
            words = [word for name, value in fields.items() if value != [] for word in
                     (f"--{name.replace('_', '-')}", str(value))]  # fmt: skip
            if fields.get("dry_sequence_breakers") == []:
                words += ["--dry-sequence-breakers", "zzzzzz"]
            common = ["generate", "--raw", prompt, "--kv-memory", "20MB", "--threads", "1", "--seed", "7"]
            whole = ["--temperature", "1", "--top-p", "1"]
            done = CliRunner().invoke(main, [*common, "--max-tokens", "12", *whole, *words])
            assert done.exit_code == 0 and expected in done.output
