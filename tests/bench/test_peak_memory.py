"""The peak memory of a whole process stays within packed weights + KV pool + 25%, without the interpreter's own
memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tiers import rest_daily
from twostroke.lab.bench import checkpoints
from twostroke.models.common.registry import read_model
from twostroke.ops.quant.formats import weight_format

SHAPE = {
    **checkpoints.SHAPES["llama-3.2-1b"],
    "hidden_size": 1536,
    "num_hidden_layers": 6,
    "num_attention_heads": 24,
    "intermediate_size": 6144,
    "vocab_size": 16384,
}
MEASURE = """
import json, sys
import twostroke.assembly.engine, twostroke.llm
from twostroke import LLM, SamplingParams
from twostroke.lab.bench.memory import peak_bytes
before = peak_bytes()
folder, weights, cache = sys.argv[1:]
settings = dict(weights=weights, cache=cache, kv_memory="40MB", context=1000, max_sequences=4, max_step_tokens=128)
with LLM(folder, **settings) as llm:
    prompts = [[1 + i] * 900 for i in range(4)]
    llm.generate(prompts, SamplingParams(max_tokens=40, temperature=0, ignore_eos=True))
    print(json.dumps({"peak": peak_bytes() - before, "kv": llm.resolved["kv_memory"]}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(checkpoints.SHAPES, "peak", SHAPE)
        return checkpoints.write_checkpoint("peak", tmp_path_factory.mktemp("peak"))


@pytest.mark.daily
@pytest.mark.slow
@pytest.mark.parametrize("weights", rest_daily(["int8", "int4"], ["int4"]))
def test_first_and_second_start(folder: Path, tmp_path: Path, weights: str) -> None:
    """The first start quantizes the bf16 checkpoint into the cache, and the second one maps it."""
    spec = read_model(json.loads((folder / "config.json").read_text()))
    packed = spec.weight_bytes(lambda weight: weight_format(weights))
    for _ in ("first", "second"):
        command = [sys.executable, "-c", MEASURE, str(folder), weights, str(tmp_path)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert result.returncode == 0, result.stderr[-2000:]
        found = json.loads(result.stdout.splitlines()[-1])
        share = found["peak"] / (packed + found["kv"])
        print(f"{weights}: peak {found['peak'] / 1e6:.0f} MB, {share:.2f} of weights + KV pool")
        assert packed > 40e6 and 0.5 < share < 1.25
