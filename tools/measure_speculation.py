"""Measures what guessing gains and what it may lose: the same requests with and without it, alternating in one engine.

    python -m tools.measure_speculation spark                    proposers on spark: questions, a copy, loops
    python -m tools.measure_speculation oracle --model PATH      a draft that agrees 70% of the time by construction
    python -m tools.measure_speculation rows --model PATH        what a step with 1 to 8 rows of one stream takes

`twostroke bench speculate` measures what guessing may lose. Every answer is compared with the answer without guesses; a
difference ends the run.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median

from msgspec import structs
from tools.ab import by_turns, median_ratio
from tools.oracle_proposer import OracleProposer

from twostroke import LLM, SamplingParams
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.types.output import Prompt


@dataclass(frozen=True)
class Round:
    """The figures of one way of guessing in one round."""

    seconds: float
    tokens: int
    guessed: int
    accepted: int


class Comparison:
    """Runs the same prompts in each way of guessing, one way after the other, for several rounds."""

    def __init__(self, llm: LLM, ways: Sequence[str], rounds: int) -> None:
        self._llm, self._ways, self._rounds = llm, ways, rounds
        self._totals = llm._built.guesser.totals
        self._expected: dict[int, list[tuple[tuple[int, ...], ...]]] = {}

    def run(self, title: str, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
        """Print a line for each way. Raises SystemExit when the ways do not give the same answers.

        Seeded requests get another seed in each round. Otherwise the finished answers of one round would be guesses in
        the next.
        """
        self._expected.clear()

        def round_of(way: str, number: int) -> Round:
            own = params if params.seed is None else replace(params, seed=params.seed + 1 + number)
            begin = (self._totals.guessed, self._totals.accepted)
            before_s = time.perf_counter()
            outputs = self._llm.engine.generate([Prompt(tuple(ids), own, speculate=way) for ids in prompts])
            took_s = time.perf_counter() - before_s
            answers = [tuple(each.token_ids for each in output.completions) for output in outputs]
            if answers != self._expected.setdefault(number, answers):
                raise SystemExit(f"{title}: {way} changed an answer")
            tokens = sum(len(ids) for answer in answers for ids in answer)
            return Round(took_s, tokens, self._totals.guessed - begin[0], self._totals.accepted - begin[1])

        found = by_turns({way: partial(round_of, way) for way in self._ways}, self._rounds)
        seconds = {way: [each.seconds for each in rounds] for way, rounds in found.items()}
        print(title)
        for way, rounds in found.items():
            guessed, taken = sum(each.guessed for each in rounds), sum(each.accepted for each in rounds)
            accepted = f"{taken}/{guessed} accepted" if guessed else ""
            ms = 1e3 * median(seconds[way]) / max(1, rounds[-1].tokens)
            ratio = median_ratio(seconds[self._ways[0]], seconds[way])
            print(f"    {way:8} {ms:8.3f} ms a token   {ratio:5.2f} x   {accepted}", flush=True)


def spark(options: argparse.Namespace) -> None:
    """Measures spark on questions at three temperatures, on a question whose answer is in the prompt, and on loops of a
    greedy model."""
    with LLM("spark", speculate=options.speculate, threads=options.threads) as llm:
        ways = ("off", "ngram", "suffix", "auto", options.speculate.partition(":")[0])
        compare = Comparison(llm, ways, options.rounds)
        questions = ["what is ttft", "how does prefill differ from decode", "what is a kv cache"]
        prompts = [llm.chat_tokens(question) for question in questions]
        for temperature in (0.0, 0.7, 1.0):
            params = SamplingParams(temperature=temperature, max_tokens=100, seed=3)
            compare.run(f"one stream, questions, temperature {temperature}", prompts[:1], params)
        answer = llm.generate([prompts[2]], SamplingParams(temperature=0.0, max_tokens=200))[0].text
        copied = llm.chat_tokens(f"{answer}\n{questions[2]}")
        compare.run(
            "one stream, the answer stands in the prompt", [copied], SamplingParams(temperature=0.0, max_tokens=150)
        )
        loops = SamplingParams(temperature=0.0, max_tokens=150, ignore_eos=True)
        compare.run("one stream, a greedy model that repeats itself", [prompts[0]], loops)


def oracle(options: argparse.Namespace) -> None:
    """Measures a model with random weights. Its greedy answer is recorded, and guessed with errors."""
    with LLM(options.model, weights=options.weights, context=1024, threads=options.threads) as llm:
        told = OracleProposer(options.rate, llm.vocab_size)
        offer(llm, told)
        prompt = random_prompt(llm, 128, 1)
        params = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True)
        told.tell(prompt, llm.engine.generate([Prompt(tuple(prompt), params)])[0].completions[0].token_ids)
        title = f"one stream, {options.weights}, a draft that agrees {options.rate:.0%} of the time"
        Comparison(llm, ("off", "oracle"), options.rounds).run(title, [prompt], params)


class FixedCount(GuessLimiter):
    """A limiter that verifies the same number of guesses in every step."""

    count = 0

    def counts(self, shape: StepShape, chances: Sequence[Sequence[float]]) -> list[int]:
        """See GuessLimiter."""
        return [min(self.count, len(each)) for each in chances]


def rows(options: argparse.Namespace) -> None:
    """Measures steps in which all guesses are right, with the same number in each step. Prints the seconds of such a
    step next to one without guesses."""
    with LLM(options.model, weights=options.weights, context=1024, threads=options.threads) as llm:
        told = OracleProposer(1.0, llm.vocab_size)
        offer(llm, told)
        limiter = llm._built.guesser._limiter = FixedCount(llm._built.guesser._limiter.times)
        prompt = random_prompt(llm, 128, 1)
        params = SamplingParams(temperature=0.0, max_tokens=options.tokens + 1, ignore_eos=True)
        told.tell(prompt, llm.engine.generate([Prompt(tuple(prompt), params)])[0].completions[0].token_ids)

        def step_s(count: int, _round: int) -> float:
            limiter.count = count
            asked = Prompt(tuple(prompt), params, speculate=told.name)
            timings = llm.engine.generate([asked])[0].completions[0].timings
            assert timings is not None and timings.finished_s is not None and timings.first_token_s is not None
            return (timings.finished_s - timings.first_token_s) / -(-options.tokens // (count + 1))

        found = by_turns({count: partial(step_s, count) for count in range(8)}, options.rounds, warm_rounds=0)
        print(f"one stream, {options.weights}: milliseconds of a step by its rows")
        for count, seconds in found.items():
            ms, ratio = 1e3 * median(seconds), median_ratio(seconds, found[0])
            print(f"    {count + 1} rows {ms:8.2f} ms   {ratio:5.2f} x one row")


def offer(llm: LLM, told: OracleProposer) -> None:
    """Let requests choose the oracle as their proposer."""
    llm._built.guesser.offer(told.name, (told,))
    session = llm._built.session
    session.limits = structs.replace(session.limits, speculate=(*session.limits.speculate, told.name))


def random_prompt(llm: LLM, length: int, seed: int) -> list[int]:
    """Token ids that no request has sent before."""
    rng = random.Random(seed)
    return [rng.randrange(llm.vocab_size) for _ in range(length)]


def main() -> None:
    """Run the measurement that the command line names."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("run", choices=("spark", "oracle", "rows"))
    parser.add_argument("--model", default="spark")
    parser.add_argument("--weights", default="int8")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.7)
    parser.add_argument("--speculate", default="draft:spark-draft", help="spark: what computes guesses")
    parser.add_argument("--threads", type=int, default=None)
    options = parser.parse_args()
    {"spark": spark, "oracle": oracle, "rows": rows}[options.run](options)


if __name__ == "__main__":
    main()
