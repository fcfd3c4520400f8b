"""The logits and greedy answers of a file by this engine, and llama.cpp's driver for the same."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from twostroke import LLM, SamplingParams
from twostroke.lab.bench.peers.environment import python_of
from twostroke.lab.bench.peers.peer import DRIVERS, find_peer
from twostroke.lab.bench.peers.session import Session
from twostroke.ops.operands import F32Array, I32Array
from twostroke.ops.quant.formats import format_choice
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.stages import StagedModel
from twostroke.types.spec.formats import KVKind
from twostroke.weights.gguf.unfold import unfold

DRIVER = Path(__file__).with_name("llama_cpp_logits.py")


def our_logits(path: Path, texts: Sequence[I32Array], threads: int, weights: str, kv: KVKind) -> Iterator[F32Array]:
    """Yields the logits (T, vocabulary) of each text. path: a folder or a GGUF file. weights: a value of the option
    --weights."""
    folder = unfold(path, None) if path.is_file() else path
    with staged_folder(folder, threads, format_choice(weights)) as opened:
        staged = replace(opened, kv=kv)
        last = len(staged.stages) - 1
        values: list[F32Array] = []
        for index in range(last):
            values = staged.run(index, staged.weights(index), texts, values)
        yield from _last(staged, texts, values)


def _last(staged: StagedModel, texts: Sequence[I32Array], values: Sequence[F32Array]) -> Iterator[F32Array]:
    head = staged.weights(len(staged.stages) - 1)
    for at, ids in enumerate(texts):
        rows = staged.logits(head, ids, values[at] if values else None)
        yield np.concatenate([each.copy() for each in rows])


def our_answers(path: Path, prompts: Sequence[list[int]], count: int, threads: int) -> list[list[int]]:
    """Returns the `count` greedy tokens after each prompt, computed on the CPU with the defaults that the engine serves
    the file with."""
    params = SamplingParams(max_tokens=count, temperature=0.0, ignore_eos=True)
    with LLM(str(path), threads=str(threads), cache="off", device="cpu") as llm:
        return [list(each.completions[0].token_ids) for each in llm.generate(prompts, params)]


def their_logits(path: Path, texts: Sequence[I32Array]) -> Iterator[F32Array]:
    """Yields the logits (T, vocabulary) of each text, from the file that llama.cpp's driver wrote."""
    every = np.fromfile(path, np.float32).reshape(sum(map(len, texts)), -1)
    yield from np.split(every, np.cumsum([len(ids) for ids in texts])[:-1])


def llama_cpp(peers: Path, log: Path) -> Session:
    """Starts llama.cpp's driver. peers: the folder of environments. Raises SystemExit when llama.cpp is not installed.
    """
    peer = replace(find_peer("llama_cpp"), driver=str(DRIVER))
    python = python_of(peers, peer)
    if python is None:
        raise SystemExit("llama.cpp is not installed. Run: twostroke bench peers install llama_cpp")
    return Session(peer, python, {**os.environ, "PYTHONPATH": str(DRIVERS)}, log)
