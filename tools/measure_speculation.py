"""Measures what guessing gains and what it may lose: the same requests with and without it, alternating in one engine.

    python tools/measure_speculation.py spark                    proposers on spark: questions, a copy, loops
    python tools/measure_speculation.py oracle --model PATH      a draft that agrees 70% of the time by construction
    python tools/measure_speculation.py rows --model PATH        what a step with 1 to 8 rows of one stream takes

`twostroke bench speculate` measures what guessing may lose.
Every answer is compared with that without guesses; a difference ends the run.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from twostroke import LLM, SamplingParams
from twostroke.engine.speculate.guess_limiter import GuessLimiter, StepShape
from twostroke.lab.bench.oracle import OracleProposer
from twostroke.types.output import Prompt


@dataclass
class Way:
    """What one way of guessing took. seconds: of each round."""

    name: str
    seconds: list[float]
    guessed: int = 0
    accepted: int = 0
    tokens: int = 0


class Comparison:
    """Rounds of the same prompts, one way after the other."""

    def __init__(self, llm: LLM, ways: Sequence[str], rounds: int) -> None:
        self._llm, self._ways, self._rounds = llm, ways, rounds
        self._totals = llm._built.guesser.totals

    def run(self, title: str, prompts: Sequence[Sequence[int]], params: SamplingParams) -> None:
        """Print a line for each way. One round more is run first and not counted.

        A seed is another one in each round, or finished answers would give the later rounds theirs.
        """
        found = {name: Way(name, []) for name in self._ways}
        for index in range(self._rounds + 1):
            expected: list[tuple[tuple[int, ...], ...]] = []
            if params.seed is not None:
                params = replace(params, seed=params.seed + 1)
            for way in found.values():
                begin = (self._totals.guessed, self._totals.accepted)
                before_s = time.perf_counter()
                made = [Prompt(tuple(ids), params, speculate=way.name) for ids in prompts]
                outputs = self._llm.engine.generate(made)
                took_s = time.perf_counter() - before_s
                answers = [tuple(each.token_ids for each in output.completions) for output in outputs]
                expected = expected or answers
                if answers != expected:
                    raise SystemExit(f"{title}: {way.name} changed an answer")
                if index:
                    way.seconds.append(took_s)
                    way.tokens = sum(len(ids) for answer in answers for ids in answer)
                    way.guessed += self._totals.guessed - begin[0]
                    way.accepted += self._totals.accepted - begin[1]
        base_s = next(iter(found.values())).seconds
        print(title)
        for way in found.values():
            ratios = [plain / own for plain, own in zip(base_s, way.seconds, strict=True)]
            accepted = f"{way.accepted}/{way.guessed} accepted" if way.guessed else ""
            ms = 1e3 * statistics.median(way.seconds) / max(1, way.tokens)
            print(
                f"    {way.name:8} {ms:8.3f} ms a token   {statistics.median(ratios):5.2f} x   {accepted}", flush=True
            )


def spark(options: argparse.Namespace) -> None:
    """Questions at three temperatures; a question whose answer stands in the prompt; loops of a greedy model."""
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
    """Random weights; their greedy answer is recorded, and guessed with errors."""
    with LLM(options.model, weights=options.weights, context=1024, threads=options.threads) as llm:
        told = OracleProposer(options.rate, llm.vocab_size)
        offer(llm, told)
        prompt = random_prompt(llm, 128, 1)
        params = SamplingParams(temperature=0.0, max_tokens=options.tokens, ignore_eos=True)
        told.tell(prompt, llm.engine.generate([Prompt(tuple(prompt), params)])[0].completions[0].token_ids)
        title = f"one stream, {options.weights}, a draft that agrees {options.rate:.0%} of the time"
        Comparison(llm, ("off", "oracle"), options.rounds).run(title, [prompt], params)


class FixedCount(GuessLimiter):
    """Verifies the same number of guesses in every step."""

    count = 0

    def counts(self, shape: StepShape, chances: Sequence[Sequence[float]]) -> list[int]:
        """See GuessLimiter."""
        return [min(self.count, len(each)) for each in chances]


def rows(options: argparse.Namespace) -> None:
    """Guesses that are all right, as many in each step: seconds of a step against one without."""
    with LLM(options.model, weights=options.weights, context=1024, threads=options.threads) as llm:
        told = OracleProposer(1.0, llm.vocab_size)
        offer(llm, told)
        limiter = llm._built.guesser._limiter = FixedCount(llm._built.guesser._limiter.times)
        prompt = random_prompt(llm, 128, 1)
        params = SamplingParams(temperature=0.0, max_tokens=options.tokens + 1, ignore_eos=True)
        told.tell(prompt, llm.engine.generate([Prompt(tuple(prompt), params)])[0].completions[0].token_ids)
        found: dict[int, list[float]] = {count: [] for count in range(8)}
        for _ in range(options.rounds):
            for count, seconds in found.items():
                limiter.count = count
                timings = (
                    llm.engine.generate([Prompt(tuple(prompt), params, speculate=told.name)])[0].completions[0].timings
                )
                assert timings is not None and timings.finished_s is not None and timings.first_token_s is not None
                took_s = timings.finished_s - timings.first_token_s
                seconds.append(took_s / -(-options.tokens // (count + 1)))
        print(f"one stream, {options.weights}: milliseconds of a step by its rows")
        for count, seconds in found.items():
            ratios = [own / plain for own, plain in zip(seconds, found[0], strict=True)]
            ms, ratio = 1e3 * statistics.median(seconds), statistics.median(ratios)
            print(f"    {count + 1} rows {ms:8.2f} ms   {ratio:5.2f} x one row")


def offer(llm: LLM, told: OracleProposer) -> None:
    """Let requests ask for the oracle."""
    llm._built.guesser.offer(told.name, (told,))
    session = llm._built.session
    session.limits = structs.replace(session.limits, speculate=(*session.limits.speculate, told.name))


def random_prompt(llm: LLM, length: int, seed: int) -> list[int]:
    """Token ids that no request has sent before."""
    rng = random.Random(seed)
    return [rng.randrange(llm.vocab_size) for _ in range(length)]


def main() -> None:
    """One of the runs."""
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
