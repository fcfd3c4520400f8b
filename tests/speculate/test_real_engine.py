"""The engine with every proposer: its answers are, bit for bit, those without guesses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs
from tools.oracle_proposer import OracleProposer

from twostroke import LLM, SamplingParams
from twostroke.assembly.guessing.guesses import DraftModel, check_draft
from twostroke.assets import spark_draft_path, spark_path
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.runner.folder import read_folder
from twostroke.types.errors import ConfigError, InvalidRequest
from twostroke.types.grammar import Grammar
from twostroke.types.output import GenerationOutput, Prompt
from twostroke.weights.hub.hub import ModelFolder

WAYS = ("ngram", "suffix", "auto", "draft", "oracle")
QUESTIONS = ("what is ttft", "what is a kv cache", "how does prefill differ from decode")
PARAMS = {
    "greedy": SamplingParams(temperature=0.0, max_tokens=60, logprobs=2),
    "sampled": SamplingParams(temperature=0.8, top_p=0.9, seed=11, max_tokens=60, logprobs=0),
    "loops": SamplingParams(temperature=0.0, max_tokens=80, ignore_eos=True),
    "penalties": SamplingParams(temperature=0.7, seed=5, max_tokens=60, repetition_penalty=1.2, frequency_penalty=0.4),
    "stop string": SamplingParams(temperature=0.0, max_tokens=60, stop=(" the", "of")),
    "three answers": SamplingParams(temperature=1.0, seed=2, n=3, max_tokens=40, min_tokens=4),
    "grammar": SamplingParams(temperature=0.6, seed=3, max_tokens=40, grammar=Grammar.regex(r"([a-z]{1,6} ){3,9}end")),
    "scored": SamplingParams(temperature=0.0, max_tokens=20, prompt_logprobs=1, logprobs=1),
}


class AllOfThem(GuessLimiter):
    """Asks for every guess that there is room for, and verifies it, whether it pays or not."""

    def most(self, shape: StepShape, first: float, later: float, asking_s: float, token_s: float, longest: int) -> int:
        return longest

    def token_s(self, shape: StepShape) -> float:
        return 1e9  # asking then pays, however slow the machine is today

    def counts(self, shape: StepShape, chances: Sequence[Sequence[float]]) -> list[int]:
        left, counts = shape.room_rows, []
        for each in chances:
            counts.append(min(left, len(each)))
            left -= counts[-1]
        return counts


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    """There are pages for about two of the answers, so that sequences are put back."""
    options = {"context": 256, "kv_memory": "830KB", "kv_format": "bf16", "max_sequences": 8, "threads": 2}
    with LLM("spark", speculate="draft:spark-draft", **options) as made:
        made._built.guesser._limiter = AllOfThem(made._built.guesser._limiter.times)
        session = made._built.session
        session.limits = structs.replace(session.limits, speculate=(*session.limits.speculate, "oracle"))
        yield made


def outputs(llm: LLM, params: SamplingParams, way: str, questions: Sequence[str] = QUESTIONS) -> list[GenerationOutput]:
    prompts = [Prompt(tuple(llm.chat_tokens(question)), params, speculate=way) for question in questions]
    return llm.engine.generate(prompts)


def facts(made: Sequence[GenerationOutput]) -> list[object]:
    """Everything that a caller sees except times, ids and the cached tokens."""
    found: list[object] = []
    for output in made:
        found += [output.prompt_token_ids, output.prompt_logprobs]
        found += [replace(each, timings=None, num_preemptions=0) for each in output.completions]
    return found


@pytest.mark.parametrize("kind", PARAMS)
def test_every_way_gives_the_same_bits(llm: LLM, kind: str) -> None:
    params, totals = PARAMS[kind], llm._built.guesser.totals
    plain = outputs(llm, params, "off")
    oracle = OracleProposer(0.7, llm.vocab_size)
    llm._built.guesser.offer("oracle", (oracle,))
    for output in plain:
        oracle.tell(output.prompt_token_ids, output.completions[0].token_ids)
    for way in WAYS:
        before = totals.guessed, totals.accepted
        assert facts(outputs(llm, params, way)) == facts(plain), way
        if way == "draft" and kind == "greedy":
            name = outputs(llm, params, way)[0].request_id
            told = " ".join(cause.text for cause in llm.explain(name)[0].causes)
            assert "guessed tokens were accepted: about" in told
        if way in ("draft", "oracle") and kind != "grammar":
            assert totals.guessed > before[0] and totals.accepted > before[1], way
    assert llm._built.cache.pages_used == 0
    assert all(proposer._cache.pages_used == 0 for proposer in llm._built.guesser._ways["draft"])


def test_a_small_pool_and_ended_readers_change_nothing(llm: LLM) -> None:
    """Streams of every kind run at once, some of which are given up in the middle, and sequences are put back."""
    rng = random.Random(4)
    params = replace(PARAMS["loops"], max_tokens=120)
    ways = (*WAYS[:4], "off")
    prompts = {way: tuple(llm.chat_tokens(QUESTIONS[index % 3])) for index, way in enumerate(ways)}
    alone = {way: outputs(llm, params, "off", [QUESTIONS[index % 3]])[0] for index, way in enumerate(ways)}
    expected = {way: output.completions[0].token_ids for way, output in alone.items()}
    for _ in range(3):
        given_up = rng.choice(ways)
        asked = [Prompt(ids, params, request_id=way, speculate=way) for way, ids in prompts.items()]
        pieces: dict[str, list[int]] = {way: [] for way in ways}
        stream = llm.engine.stream(asked)
        for delta in stream:
            pieces[delta.request_id] += delta.token_ids
            if delta.request_id == given_up and len(pieces[given_up]) > 20:
                break
        stream.close()
        for way, made in pieces.items():
            assert tuple(made) == expected[way][: len(made)], way
        assert llm._built.cache.pages_used == 0
        llm._built.cache.check()
    together = llm.engine.generate([Prompt(ids, params, speculate=way) for way, ids in prompts.items()])
    assert [each.completions[0].token_ids for each in together] == list(expected.values())
    assert sum(each.completions[0].num_preemptions for each in together) > 0


def test_what_an_engine_does_not_have_is_refused_by_name() -> None:
    with LLM("spark", context=128, kv_memory="2MB") as plain:
        prompt = Prompt((1, 2, 3), SamplingParams(max_tokens=2), speculate="draft")
        with pytest.raises(InvalidRequest, match="speculate has the value 'draft'") as refused:
            plain.engine.generate([prompt])
        assert refused.value.param == "speculate" and "--speculate draft:MODEL" in str(refused.value)
        with pytest.raises(InvalidRequest, match="speculate"):
            plain.engine.generate([replace(prompt, speculate="magic")])
        assert plain.engine.generate([replace(prompt, speculate="ngram")])[0].completions[0].num_output_tokens == 2


@pytest.mark.parametrize("value", ["magic", "draft", "draft:", "ngram:3"])
def test_an_unknown_way_is_refused_before_anything_is_loaded(value: str) -> None:
    with pytest.raises(ConfigError, match="--speculate"):
        LLM("spark", speculate=value)


def test_a_draft_that_cannot_guess_is_refused_with_the_reason() -> None:
    folder = spark_path()
    model = read_folder(folder)
    draft = DraftModel(ModelFolder(spark_draft_path(), "small", None), read_folder(spark_draft_path()))
    check_draft(draft, model, folder)
    other = replace(draft, spec=replace(draft.spec, vocab_size=5000))
    with pytest.raises(ConfigError, match=r"draft:small names a model of another vocabulary.*5,000 tokens.*4,096"):
        check_draft(other, model, folder)


def test_the_packed_file_of_a_draft_model_is_kept_too(tmp_path: Path) -> None:
    with LLM("spark", threads=1, kv_memory="20MB", cache=str(tmp_path), speculate="draft:spark-draft"):
        pass
    assert [path.suffix for path in (tmp_path / "packed").iterdir()] == [".pack"] * 2
