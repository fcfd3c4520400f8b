"""Grammars in the real engine: the embedded model is made to write nonsense, and still answers in the required form."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.tiers import examples
from twostroke import LLM, Grammar, SamplingParams
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import InvalidRequest
from twostroke.types.output import Completion, Prompt
from twostroke.types.request import FinishReason

QUESTION = "What is prefill?"


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("spark", kv_memory="40MB", threads=1) as made:
        yield made


@pytest.fixture(scope="module")
def ask(llm: LLM) -> tuple[int, ...]:
    return tuple(llm.chat_tokens(QUESTION))


def answer(llm: LLM, grammar: Grammar, **params: Any) -> Completion:
    asked = {"temperature": 2.0, "max_tokens": 150, "seed": 3, **params}
    return llm.generate([tuple(llm.chat_tokens(QUESTION))], SamplingParams(grammar=grammar, **asked))[0].completions[0]


TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=6)
LEAVES = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.builds(
        lambda low, size: {"type": "integer", "minimum": low, "maximum": low + size},
        st.integers(-999, 999),
        st.integers(0, 99),
    ),
    st.builds(lambda size: {"type": "string", "maxLength": size}, st.integers(0, 8)),
    st.builds(
        lambda values: {"enum": values},
        st.lists(TEXTS | st.integers(-9, 9) | st.none(), min_size=1, max_size=4, unique=True),
    ),
    st.builds(lambda text: {"const": text}, TEXTS),
    st.sampled_from([{"type": "string", "pattern": "^[a-c]{2,5}$"}, {"type": "string", "format": "date"}]),
)


def _objects(parts: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    names = st.lists(TEXTS, min_size=1, max_size=3, unique=True)

    def build(names: list[str], parts: list[Any], num_required: int) -> dict[str, Any]:
        properties = dict(zip(names, parts, strict=False))
        required = list(properties)[:num_required]
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    return st.builds(build, names, st.lists(parts, min_size=3, max_size=3), st.integers(0, 3))


SCHEMAS = st.recursive(
    LEAVES,
    lambda parts: st.one_of(
        _objects(parts),
        st.builds(lambda item, size: {"type": "array", "items": item, "maxItems": size}, parts, st.integers(0, 3)),
        st.builds(lambda one, other: {"anyOf": [one, other]}, parts, parts),
    ),
    max_leaves=5,
)


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(schema=SCHEMAS, seed=st.integers(0, 2**31))
def test_an_answer_fits_its_schema_or_was_cut(schema: dict[str, Any], seed: int, llm: LLM) -> None:
    made = answer(llm, Grammar.json_schema(schema), seed=seed)
    assert made.finish_reason in (FinishReason.STOP, FinishReason.LENGTH), made.error
    if made.finish_reason is FinishReason.STOP:
        value = json.loads(made.text)
        assert jsonschema_rs.validator_for(schema).is_valid(value), (schema, value)


def test_most_answers_do_come_to_their_end(llm: LLM) -> None:
    """This keeps the property above from passing because every answer is cut."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}},
        "required": ["a"],
    }
    grammar = Grammar.json_schema({**schema, "additionalProperties": False})
    ends = [answer(llm, grammar, seed=seed, temperature=1.0).finish_reason for seed in range(10)]
    assert ends.count(FinishReason.STOP) >= 8


def test_the_end_of_the_grammar_ends_the_answer(llm: LLM) -> None:
    made = answer(llm, Grammar.choice(["prefill", "decode"]), max_tokens=100)
    assert made.text in ("prefill", "decode")
    assert made.finish_reason is FinishReason.STOP and made.stop_reason is None
    assert made.num_output_tokens == len(made.token_ids) + 1  # the end token counts


@pytest.mark.parametrize(
    "params",
    [
        {"temperature": 0.0},
        {"temperature": 1.0, "top_k": 1},
        {"temperature": 1.0, "top_p": 0.05},
        {"temperature": 1.0, "min_p": 1.0},
        {"temperature": 0.7, "top_k": 3, "top_p": 0.5, "repetition_penalty": 1.5, "frequency_penalty": 2.0},
        {"logit_bias": {5: 100.0, 300: 100.0}},
    ],
)
def test_the_mask_comes_before_temperature_and_cuts(params: dict[str, Any], llm: LLM) -> None:
    """If cuts came first, no token that the grammar allows would be among the candidates."""
    assert re.fullmatch(r"[0-9]{12}", answer(llm, Grammar.regex("[0-9]{12}"), **params).text)


def test_a_stop_string_cuts_inside_the_form(llm: LLM) -> None:
    made = answer(llm, Grammar.regex(r"a{3}b{3}c{3}"), stop=("bc",))
    assert (made.text, made.stop_reason, made.finish_reason) == ("aaabb", "bc", FinishReason.STOP)


def test_a_stop_token_inside_the_form_ends_it(llm: LLM) -> None:
    comma = llm.tokenizer.encode_rendered(",")[0]
    made = answer(llm, Grammar.regex("[xyz],[xyz]"), stop_token_ids=(comma,))
    assert re.fullmatch("[xyz]", made.text) and made.stop_reason == comma


def test_log_probabilities_are_the_models_own(llm: LLM, ask: tuple[int, ...]) -> None:
    """They are computed before the mask, as they are computed before temperature. So they show the model's own choice
    next to the forced one."""
    made = answer(llm, Grammar.regex("[0-9]{4}"), logprobs=3)
    free = llm.generate([ask], SamplingParams(temperature=0.0, max_tokens=1, logprobs=3))[0].completions[0]
    assert made.logprobs is not None and free.logprobs is not None
    assert made.logprobs[0].top == free.logprobs[0].top
    assert [entry.token_id for entry in made.logprobs] == list(made.token_ids)
    assert all(math.isfinite(entry.logprob) and entry.logprob < 0 for entry in made.logprobs)
    assert made.logprobs[0].token_id not in dict(made.logprobs[0].top)


def test_siblings_go_their_own_ways(llm: LLM, ask: tuple[int, ...]) -> None:
    params = SamplingParams(grammar=Grammar.regex("[a-z]{8}( [a-z]{3,9}){2}"), n=6, temperature=2.0, seed=5)
    texts = [made.text for made in llm.generate([ask], params)[0].completions]
    assert len(set(texts)) > 3
    assert all(re.fullmatch("[a-z]{8}( [a-z]{3,9}){2}", text) for text in texts)


def test_one_batch_with_and_without(llm: LLM, ask: tuple[int, ...]) -> None:
    plain = SamplingParams(temperature=0.0, max_tokens=12)
    formed = SamplingParams(temperature=0.0, max_tokens=12, grammar=Grammar.regex("[0-9]{12}"))
    together = llm.generate([ask, ask, ask], [plain, formed, plain])
    alone = [llm.generate([ask], params)[0] for params in (plain, formed)]
    assert together[0].text == together[2].text == alone[0].text
    assert together[1].text == alone[1].text


@pytest.mark.parametrize(("name", "value"), [("min_tokens", 3), ("ignore_eos", True)])
def test_what_contradicts_a_grammar_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as caught:
        SamplingParams(grammar=Grammar.json_object(), **{name: value})
    assert caught.value.param == name


def test_a_grammar_with_a_fault_starts_nothing(llm: LLM, ask: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRequest, match="unclosed"):
        llm.generate([ask, ask], [SamplingParams(), SamplingParams(grammar=Grammar.regex("(a"))])
    assert llm.engine.gauges().running == llm.engine.gauges().waiting == 0


def test_one_that_becomes_too_heavy_ends_its_own_request_alone(llm: LLM, ask: tuple[int, ...]) -> None:
    """Its own limits stop it in a step, and the others of that step go on."""
    heavy = SamplingParams(grammar=Grammar.regex("(.{1,50}){1,50}"), temperature=2.0, seed=1, max_tokens=60)
    plain = SamplingParams(temperature=0.0, max_tokens=30)
    engine: SyncEngine = llm.engine
    outputs = engine.generate([Prompt(ask, heavy), Prompt(ask, plain)])
    failed, fine = outputs[0].completions[0], outputs[1].completions[0]
    assert failed.finish_reason is FinishReason.ERROR and "grammar" in (failed.error or "")
    assert fine.finish_reason is FinishReason.LENGTH
    assert fine.text == llm.generate([ask], plain)[0].text
