"""best_of and beam search through the Python API and the server, on the embedded model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.serve.harness import Live, serving
from twostroke.engine.answers.chosen import ChosenAnswers
from twostroke.llm import LLM
from twostroke.server.build import build_server
from twostroke.types.errors import BackendError
from twostroke.types.grammar import Grammar
from twostroke.types.output import Delta, GenerationOutput
from twostroke.types.request import FinishReason
from twostroke.types.result import TokenLogprob
from twostroke.types.sampling.sampling_params import SamplingParams

PROMPT = "The cache holds pages"
OPTIONS = {"kv_memory": "20MB", "threads": 1}


@pytest.fixture(scope="module")
def llm() -> Iterator[LLM]:
    with LLM("spark", **OPTIONS) as made:
        yield made


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with build_server("spark", dict(OPTIONS)) as built, serving(built.parts) as made:
        yield made


def mean(output: GenerationOutput, index: int) -> float:
    logprobs = output.completions[index].logprobs or ()
    return sum(each.logprob for each in logprobs) / len(logprobs)


def test_best_of_gives_the_answers_of_n_in_order_of_their_mean_log_probability(llm: LLM) -> None:
    fields: dict[str, Any] = {"seed": 5, "max_tokens": 12, "ignore_eos": True, "temperature": 1.2}
    several = llm.generate(PROMPT, SamplingParams(n=6, logprobs=0, **fields))[0]
    means = [mean(several, index) for index in range(6)]
    best = sorted(range(6), key=lambda index: -means[index])
    assert len(set(means)) == 6 and best != sorted(best)
    chosen = llm.generate(PROMPT, SamplingParams(n=2, best_of=6, **fields))[0]
    assert [each.token_ids for each in chosen.completions] == [several.completions[i].token_ids for i in best[:2]]
    assert [each.score for each in chosen.completions] == [means[i] for i in best[:2]]
    assert [each.index for each in chosen.completions] == [0, 1]
    assert all(each.logprobs is None for each in chosen.completions)
    assert chosen.num_other_tokens == 4 * 12
    asked = llm.generate(PROMPT, SamplingParams(n=1, best_of=6, logprobs=2, prompt_logprobs=0, **fields))[0]
    assert asked.completions[0].logprobs and len(asked.completions[0].logprobs[0].top) == 2
    assert asked.prompt_logprobs and len(asked.prompt_logprobs) == len(asked.prompt_token_ids) - 1
    assert llm._built.session._choosing == {}, "nothing is kept of a request that has ended"


def test_the_end_token_counts() -> None:
    """Without the end token in the count, an answer that ends would be compared only by the tokens before its end."""
    choosing = ChosenAnswers(SamplingParams(n=1, best_of=2))
    stop = FinishReason.STOP
    end = TokenLogprob(9, -5.0)
    first = Delta("r", 0, "a", (1,), (TokenLogprob(1, -1.0),), stop, end_logprob=end, num_output_tokens=2)
    second = Delta("r", 1, "b", (2,), (TokenLogprob(2, -2.0),), FinishReason.LENGTH, num_output_tokens=1)
    assert choosing.add(first) == []
    (best,) = choosing.add(second)
    assert (best.text, best.score, best.index, best.num_other_tokens) == ("b", -2.0, 0, 2)


def test_one_that_fails_is_reported() -> None:
    choosing = ChosenAnswers(SamplingParams(n=1, best_of=2))
    choosing.add(Delta("r", 0, "a", (1,), (TokenLogprob(1, -1.0),), FinishReason.STOP))
    (told,) = choosing.add(Delta("r", 1, "", finish_reason=FinishReason.ERROR, error="broken"))
    assert (told.finish_reason, told.error) == (FinishReason.ERROR, "broken")


def test_beams_run_beside_other_requests_and_come_best_first(llm: LLM) -> None:
    alone = llm.beam_search(PROMPT, 4, max_tokens=16)[0]
    scores = [each.score for each in alone.completions]
    assert len(scores) == 4 and scores == sorted(scores, key=lambda score: -(score or 0.0))
    assert len({each.token_ids for each in alone.completions}) == 4
    beams = SamplingParams(n=4, use_beam_search=True, max_tokens=16)
    sampled = SamplingParams(temperature=1.0, seed=1, max_tokens=30)
    together = llm.generate([PROMPT, PROMPT, "Decode waits"], [sampled, beams, sampled])[1]
    assert [(each.token_ids, each.score) for each in together.completions] == [
        (each.token_ids, each.score) for each in alone.completions
    ]
    timings = alone.completions[0].timings
    assert timings is not None and timings.ttft_s is not None and timings.e2e_s is not None
    assert 0 < timings.ttft_s < timings.e2e_s
    assert llm.explain(alone.request_id)


def test_a_search_keeps_to_a_grammar_and_says_where_it_allows_too_few_answers(llm: LLM) -> None:
    grammar = Grammar.choice(["red", "green", "blue"])
    params = SamplingParams(n=2, best_of=8, use_beam_search=True, max_tokens=12, grammar=grammar, logprobs=1)
    found = llm.generate(PROMPT, params)[0].completions
    assert {each.text for each in found} < {"red", "green", "blue"} and len({each.text for each in found}) == 2
    assert [each.finish_reason for each in found] == [FinishReason.STOP] * 2
    assert all(logprob.logprob <= 0 and len(logprob.top) == 1 for each in found for logprob in each.logprobs or ())
    every = SamplingParams(n=40, use_beam_search=True, max_tokens=12, grammar=grammar)
    with pytest.raises(BackendError, match="fewer answers than were asked for"):
        llm.generate(PROMPT, every)


def test_beams_find_what_greedy_misses(llm: LLM) -> None:
    """This holds for this prompt; a beam search is not always better than greedy decoding."""
    greedy = llm.generate(PROMPT, SamplingParams(temperature=0, max_tokens=16, ignore_eos=True, logprobs=0))[0]
    best = llm.beam_search(PROMPT, 4, max_tokens=16, length_penalty=0.0, ignore_eos=True)[0].completions[0]
    assert best.score is not None and greedy.completions[0].logprobs is not None
    assert best.score > sum(each.logprob for each in greedy.completions[0].logprobs)


@pytest.mark.parametrize("beams", [True, False], ids=["beams", "best_of"])
def test_the_best_of_several_are_streamed_whole(beams: bool, llm: LLM, live: Live) -> None:
    """Each answer is one piece, best first, with the reasons and the usage of an answer that is not streamed."""
    params = SamplingParams(n=2, best_of=4, use_beam_search=beams, max_tokens=12, seed=5, temperature=1.0)
    whole = llm.generate(PROMPT, params)[0]
    pieces = list(llm.stream(PROMPT, params))
    assert [(each.index, each.text, each.token_ids, each.finish_reason, each.score) for each in pieces] == [
        (each.index, each.text, each.token_ids, each.finish_reason, each.score) for each in whole.completions
    ]
    fields = {"n": 2, "best_of": 4, "use_beam_search": beams, "max_tokens": 12, "seed": 5, "logprobs": 1}
    asked = {"model": "spark", "prompt": PROMPT, "temperature": 1.0, **fields}
    expected = live.post("/v1/completions", asked).json
    streamed = live.post("/v1/completions", {**asked, "stream": True, "stream_options": {"include_usage": True}})
    events = streamed.events[:-1]
    choices = [choice for event in events for choice in event["choices"]]
    assert choices == expected["choices"] and events[-1]["usage"] == expected["usage"]


def test_a_stop_string_ends_a_beam(llm: LLM) -> None:
    """The best answer becomes shorter, so this is another search. No text contains the string, and the finish reason
    names it."""
    free = llm.beam_search(PROMPT, 4, max_tokens=12, ignore_eos=True)[0].completions
    stop = free[0].text[10:14]
    params = SamplingParams(n=4, use_beam_search=True, max_tokens=12, ignore_eos=True, stop=(stop,))
    found = llm.generate(PROMPT, params)[0].completions
    stopped = [each for each in found if each.stop_reason == stop]
    assert stopped and all(stop not in each.text for each in found)
    assert all(each.finish_reason is FinishReason.STOP and each.num_output_tokens < 12 for each in stopped)
    assert [each.score for each in found] == sorted((each.score or 0.0 for each in found), reverse=True)


def test_the_server_gives_the_same_beams(live: Live, llm: LLM) -> None:
    beams = SamplingParams(n=2, best_of=4, use_beam_search=True, max_tokens=12, length_penalty=2.0)
    expected = llm.generate(PROMPT, beams)[0]
    fields = {"n": 2, "best_of": 4, "use_beam_search": True, "max_tokens": 12, "length_penalty": 2.0}
    body = {"model": "spark", "prompt": PROMPT, "temperature": 0, "logprobs": 1, **fields}
    reply = live.post("/v1/completions", body)
    assert [choice["text"] for choice in reply.json["choices"]] == [each.text for each in expected.completions]
    made = sum(each.num_output_tokens for each in expected.completions) + expected.num_other_tokens
    assert reply.json["usage"]["completion_tokens"] == made
    assert len(reply.json["choices"][0]["logprobs"]["tokens"]) == len(expected.completions[0].token_ids)
    ask = [{"role": "user", "content": "What is prefill?"}]
    chat = live.post("/v1/chat/completions", {"model": "spark", "messages": ask, **fields})
    texts = [choice["message"]["content"] for choice in chat.json["choices"]]
    assert texts == [each.text for each in llm.generate([llm.chat_tokens("What is prefill?")], beams)[0].completions]


def test_usage_counts_the_tokens_of_all_of_best_of(live: Live) -> None:
    body = {"model": "spark", "prompt": PROMPT, "n": 1, "best_of": 4, "max_tokens": 7, "ignore_eos": True, "seed": 3}
    reply = live.post("/v1/completions", body)
    assert len(reply.json["choices"]) == 1 and reply.json["usage"]["completion_tokens"] == 4 * 7
