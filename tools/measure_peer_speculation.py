"""What prompt lookup gains here, in llama.cpp and in vLLM: the same text, with it and without, by turns in each engine.

    python -m tools.measure_peer_speculation [--peers llama_cpp,vllm] [--rounds 7] [--tokens 150] [--threads 2]

The model is spark; the answer to the question stands in the prompt. llama.cpp reads it as a GGUF file in Q8_0 and
guesses by `LlamaPromptLookupDecoding`, vLLM reads the folder and guesses by `ngram`, each 8 tokens at a time. Peers run
in the environments that `twostroke bench peers install` makes. For a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from tools.ab import by_turns, median_ratio

from twostroke import LLM, SamplingParams
from twostroke.assembly.settings.env import read_machine
from twostroke.assets import spark_path
from twostroke.lab.bench.peers.environment import python_of
from twostroke.lab.bench.peers.peer import find_peer
from twostroke.types.output import Prompt

QUESTION = "what is a kv cache"
WAYS = ("off", "ngram")
Answer = Callable[[str], int]

LLAMA = """
import json, sys, time
from llama_cpp import Llama
from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
asked = json.load(open(sys.argv[1]))
made = {}
for way in ("off", "ngram"):
    draft = LlamaPromptLookupDecoding(num_pred_tokens=8) if way == "ngram" else None
    made[way] = Llama(asked["gguf"], n_ctx=2048, n_threads=asked["threads"], n_threads_batch=asked["threads"],
                      logits_all=draft is not None, draft_model=draft, verbose=False)
for _ in range(asked["rounds"] + 1):
    for way, engine in made.items():
        engine.reset()
        begin, count = time.perf_counter(), 0
        for token in engine.generate(asked["prompt"], temp=0.0):
            count += 1
            if count == asked["tokens"]:
                break
        print(json.dumps([way, time.perf_counter() - begin, count]), flush=True)
"""
VLLM = """
import json, os, sys, time
asked = json.load(open(sys.argv[1]))
os.environ.update(VLLM_CPU_KVCACHE_SPACE="1", VLLM_CPU_OMP_THREADS_BIND="nobind", OMP_NUM_THREADS=str(asked["threads"]),
                  VLLM_ENABLE_V1_MULTIPROCESSING="0")
from vllm import LLM, SamplingParams
guess = {"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4, "prompt_lookup_min": 2}
params = SamplingParams(temperature=0.0, max_tokens=asked["tokens"], ignore_eos=True, detokenize=False)
for way, more in (("off", {}), ("ngram", {"speculative_config": guess})):
    engine = LLM(asked["folder"], dtype="bfloat16", max_model_len=1024, max_num_seqs=1, enable_prefix_caching=False,
                 **more)
    for _ in range(asked["rounds"] + 1):
        begin = time.perf_counter()
        engine.generate([{"prompt_token_ids": asked["prompt"]}], params, use_tqdm=False)
        print(json.dumps([way, time.perf_counter() - begin, asked["tokens"]]), flush=True)
    del engine
"""
SCRIPTS = {"llama_cpp": LLAMA, "vllm": VLLM}


def ours(prompt: Sequence[int], tokens: int, rounds: int, threads: int) -> list[tuple[str, float, int]]:
    """(way, seconds, tokens) of each round; the first counts as warm-up."""
    with LLM("spark", threads=threads) as llm:
        params = SamplingParams(temperature=0.0, max_tokens=tokens, ignore_eos=True)

        def answer_s(way: str, number: int) -> float:
            salted = Prompt(tuple(prompt), params, speculate=way, cache_salt=f"{way}{number}")
            begin_s = time.perf_counter()
            llm.engine.generate([salted])
            return time.perf_counter() - begin_s

        found = by_turns({way: partial(answer_s, way) for way in WAYS}, rounds + 1, warm_rounds=0)
    return [(way, seconds, tokens) for way, taken in found.items() for seconds in taken]


def peer(name: str, asked: Path) -> list[tuple[str, float, int]]:
    """The same of a peer. Raises SystemExit where it is not installed or fails."""
    python = python_of(read_machine().cache_folder / "peers", find_peer(name))
    if python is None:
        raise SystemExit(f"{name} is not installed. Run: twostroke bench peers install {name}")
    done = subprocess.run(
        [str(python), "-c", SCRIPTS[name], str(asked)], capture_output=True, text=True, check=False, timeout=900
    )
    if done.returncode:
        raise SystemExit(f"{name} failed: {done.stderr[-1000:]}")
    return [tuple(json.loads(line)) for line in done.stdout.splitlines() if line.startswith("[")]


def figures(found: Sequence[tuple[str, float, int]]) -> dict[str, float]:
    """Tokens a second without and with guesses, and the median of their ratios; the first round is left out."""
    rates = {way: [count / seconds for each, seconds, count in found if each == way][1:] for way in WAYS}
    medians = {way: median(rates[way]) for way in WAYS}
    return {**medians, "ratio": median_ratio(rates["ngram"], rates["off"])}


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default="llama_cpp,vllm")
    for name, value in (("rounds", 7), ("tokens", 150), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with LLM("spark", threads=options.threads) as llm:
        answer = llm.generate([llm.chat_tokens(QUESTION)], SamplingParams(temperature=0.0, max_tokens=200))[0].text
        prompt = list(llm.chat_tokens(f"{answer}\n{QUESTION}"))
    rows = {"twostroke": figures(ours(prompt, options.tokens, options.rounds, options.threads))}
    with tempfile.TemporaryDirectory() as folder:
        made, asked = Path(folder) / "spark", Path(folder) / "asked.json"
        command = ["quantize", "spark", "--to", "gguf:Q8_0", "--output", str(made), "--no-report"]
        subprocess.run([sys.executable, "-m", "twostroke", *command], check=True, stdout=sys.stderr)
        (gguf,) = made.glob("*.gguf")
        said = {"gguf": str(gguf), "folder": str(spark_path()), "prompt": prompt, **vars(options)}
        asked.write_text(json.dumps(said))
        for name in filter(None, options.peers.split(",")):
            rows[name] = figures(peer(name, asked))
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for name, row in rows.items():
        print(f"{name:10} off {row['off']:8.0f} tok/s   lookup {row['ngram']:8.0f} tok/s   {row['ratio']:.2f} x")


if __name__ == "__main__":
    main()
