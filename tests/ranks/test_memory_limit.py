"""A model that does not fit into the memory of one process runs on two, each with the same limit, with the bits of one
process without a limit.

The limit is on addresses (`ulimit -v`). Each process of the group has it for itself, and the kernel enforces it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from twostroke.assembly.settings.env import process_environment
from twostroke.ops.program.values import Weight
from twostroke.runner.folder import read_folder

ROOM_BYTES = 720_000_000
"""The room above what a process has taken when it is limited. The model has 336 MB of float32 weights, and a process
takes 400 MB more. So one process has no room for both, and two have, with half of the weights each."""

DRIVER = """
import json, pathlib, resource, sys
from twostroke import LLM, SamplingParams
import twostroke.assembly.engine

folder, room, options = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
if room:
    used = int(pathlib.Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
fixed = {"weights": "f32", "cache": "off", "threads": "1", "context": "256", "max_sequences": "2"}
with LLM(folder, **fixed, max_step_tokens="64", kv_memory="12MB", **options) as llm:
    (made,) = llm.generate(["What is prefill?"], SamplingParams(temperature=0.7, seed=5, max_tokens=6, logprobs=2))
    print(json.dumps([made.completions[0].token_ids, repr(made.completions[0].logprobs)]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five wide layers with random weights, and spark's tokenizer."""
    import twostroke.assets

    place, spark = tmp_path_factory.mktemp("wide"), Path(twostroke.assets.__file__).parent / "spark"
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(spark / name, place / name)
    known = json.loads((spark / "config.json").read_text())
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": 5,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "vocab_size": known["vocab_size"],
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "torch_dtype": "float16",
    }
    (place / "config.json").write_text(json.dumps(config))
    dice = np.random.default_rng(1)
    tensors: dict[str, Any] = {}
    program = read_folder(place).program
    for item in (*program.weights, *program.vectors):
        for part in item.parts:
            numbers = dice.standard_normal(part.shape, np.float32)
            tensors[part.name] = (numbers / 32 if isinstance(item, Weight) else 1 + numbers / 16).astype(np.float16)
    save_file(tensors, place / "model.safetensors")
    return place


def run(folder: Path, room: int, **options: str) -> subprocess.CompletedProcess[str]:
    environment = process_environment() | {"PYTHONPATH": str(Path(__file__).parents[2] / "src")}
    command = [sys.executable, "-c", DRIVER, str(folder), str(room), json.dumps(options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.daily
@pytest.mark.slow
def test_two_processes_hold_what_one_does_not(folder: Path) -> None:
    alone = run(folder, 0)
    assert alone.returncode == 0, alone.stderr
    refused = run(folder, ROOM_BYTES)
    assert refused.returncode != 0 and "OutOfMemory: The model does not fit" in refused.stderr
    assert "`ulimit -v` allows" in refused.stderr
    for way in ("tensor_parallel", "pipeline_parallel"):
        found = run(folder, ROOM_BYTES, **{way: "2"})
        assert found.returncode == 0, found.stderr
        assert found.stdout == alone.stdout
