"""What the engine guesses with the shipped heads, compared with PyTorch on the same files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.lazily import Lazily, torch, torch_files
from tests.speculate.test_real_engine import AllOfThem
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_eagle_path, spark_medusa_path, spark_path
from twostroke.engine.speculate.proposer import Guess, GuessWanted
from twostroke.types.output import Prompt

spark_heads, training = Lazily("tools.spark.heads"), Lazily("tools.spark.train_heads")
Judge = Callable[[list[int], int], list[int]]


def medusa_judge(model: Any) -> Judge:
    folder = spark_medusa_path()
    config = json.loads((folder / "config.json").read_text())
    heads = spark_heads.Medusa(spark_heads.MedusaConfig(config["medusa_num_heads"], config["medusa_num_layers"]), 256)
    stored = torch_files.load_file(folder / "medusa_lm_head.safetensors")
    heads.load_state_dict({f"heads.{name}": tensor.float() for name, tensor in stored.items()})

    def guess(known: list[int], count: int) -> list[int]:
        ids = torch.tensor([known[:-1]])
        states = heads(model.hidden(ids), ids)
        return [int(model.logits(each[0, -1]).argmax()) for each in states[:count]]

    return guess


def eagle_judge(model: Any) -> Judge:
    layer = spark_heads.Eagle(spark_heads.EAGLE, model.model.embed_tokens.weight)
    stored = torch_files.load_file(spark_eagle_path() / "model.safetensors")
    layer.load_state_dict({name.removeprefix("layers.0."): tensor.float() for name, tensor in stored.items()})

    def guess(known: list[int], count: int) -> list[int]:
        hidden, text = model.hidden(torch.tensor([known[:-1]])), list(known)
        for _ in range(count):
            own = layer._layer(torch.tensor([text[1:]]), hidden)[:, -1:]
            text.append(int(model.logits(own[0, -1]).argmax()))
            hidden = torch.cat([hidden, own], dim=1)
        return text[len(known) :]

    return guess


@pytest.mark.parametrize(("way", "made"), [("medusa", medusa_judge), ("eagle", eagle_judge)])
def test_the_engine_guesses_what_pytorch_does(way: str, made: Callable[[Any], Judge], tmp_path: Path) -> None:
    told: list[tuple[list[int], Guess]] = []
    options = {"weights": "f32", "kv_format": "f32", "context": 256, "kv_memory": "4MB", "threads": 1}
    with LLM("spark", speculate=way, cache="off", **options) as llm:
        guesser = llm._built.guesser
        guesser._limiter = AllOfThem(guesser._limiter.times)
        (proposer,) = guesser._ways[way]
        plain = proposer.propose

        def propose(wanted: Sequence[GuessWanted]) -> Sequence[Guess]:
            found = plain(wanted)
            told.extend((list(each.known), guess) for each, guess in zip(wanted, found, strict=True))
            return found

        proposer.propose = propose  # type: ignore[method-assign]
        params = SamplingParams(temperature=0.0, max_tokens=40)
        llm.engine.generate([Prompt(tuple(llm.chat_tokens("what is ttft")), params)])
    guesses = [(known, list(guess.token_ids)) for known, guess in told if guess.token_ids]
    assert len(guesses) > 5 and max(len(guess) for _, guess in guesses) > 2
    with torch.inference_mode():
        judge = made(training.spark_model(spark_path()))
        for known, guess in guesses[:: max(1, len(guesses) // 6)]:
            assert judge(known, len(guess)) == guess
