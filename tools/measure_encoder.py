"""Seconds and errors of encoders of images with random weights: here, in llama.cpp's mtmd and in OpenVINO.

    python -m tools.measure_encoder [--shapes siglip-896,qwen3-vl-1024x768] [--weights int8,bf16] [--rounds 3]
        [--threads 2] [--peer llama.cpp=build/bin/llama-mtmd-cli] [--peer openvino=venv/bin/python] [--save FILE.json]

From pixels to image rows, by turns, once more than --rounds, and the first round counts as warm-up. An error is the
largest difference from transformers in float32, as a share of the range of all rows. llama-mtmd-cli comes out of the
source tree that the package llama_cpp_python brings (`pip download --no-deps --no-binary :all: llama_cpp_python`):
`cmake -S vendor/llama.cpp -B build -DLLAMA_CURL=OFF`, then `cmake --build build --target llama-mtmd-cli`. OpenVINO
needs an environment with openvino, torch and transformers. For a quiet machine; the shape `tiny` tries the script, and
`--layers 2` a part of a tower.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from msgspec import Struct, structs
from tests.vision.families import FAMILIES, GEMMA_MARKS, gemma3_sliding, qwen_ids
from tests.vision.family import TEXT, Family, library
from tests.vision.folders import picture, png
from tests.vision.projectors import write_projector, write_text

from twostroke.assembly.engine import build_sync
from twostroke.images.parts import AskedImage
from twostroke.ops.operands import F32Array

PEERS = ("llama.cpp", "openvino")
WIDTH = 2560
"""The hidden size of the language models: that of models with 4B parameters. They have two layers, which are not
computed."""


class EncoderShape(Struct, frozen=True):
    """family: the family with the tower's real sizes. size: the size of the picture in pixels. arch, word: the names of
    the two models in a GGUF file."""

    family: Family
    size: tuple[int, int]
    arch: str
    word: str


class Measured(Struct, frozen=True):
    """error: the largest difference from transformers; None when the rows of a peer are not read."""

    engine: str
    seconds: tuple[float, ...]
    error: float | None

    def line(self) -> str:
        """Returns the figures as one line for people."""
        error = "" if self.error is None else f", error {self.error:.1e}"
        return f"{self.engine:<24} {statistics.median(self.seconds):8.3f} s, {min(self.seconds):8.3f} at best{error}"


def siglip(layers: int = 27) -> torch.nn.Module:
    """Returns SigLIP so400m at 896 x 896, as Gemma 3 has it, with random weights."""
    find = library(GEMMA_MARKS).token_to_id
    text = {**TEXT, "hidden_size": WIDTH, "num_hidden_layers": 2, "head_dim": 16, "query_pre_attn_scalar": 16}
    config = transformers.Gemma3Config(
        text_config={**text, "sliding_window": 12, "layer_types": ["sliding_attention"] * 2},
        vision_config={
            **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": layers, "num_attention_heads": 16},
            **{"image_size": 896, "patch_size": 14, "model_type": "siglip_vision_model"},
        },
        mm_tokens_per_image=256,
        boi_token_index=find("<start_of_image>"),
        eoi_token_index=find("<end_of_image>"),
        image_token_index=find("<image_soft_token>"),
    )
    config.architectures = ["Gemma3ForConditionalGeneration"]
    return transformers.Gemma3ForConditionalGeneration(config)


def qwen3_vl(layers: int = 24) -> torch.nn.Module:
    """Returns the image tower of Qwen3-VL-4B with random weights."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 4, 4], "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(
        text_config={**TEXT, "hidden_size": WIDTH, "head_dim": 24, "rope_parameters": turn},
        vision_config={
            **{"depth": layers, "hidden_size": 1024, "intermediate_size": 4096, "num_heads": 16, "patch_size": 16},
            **{"spatial_merge_size": 2, "out_hidden_size": WIDTH, "num_position_embeddings": 2304},
            "deepstack_visual_indexes": [each for each in (5, 11, 17) if each < layers] or [0],
        },
        tie_word_embeddings=False,
        **qwen_ids(),
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    return transformers.Qwen3VLForConditionalGeneration(config)


def _settings(name: str, **changed: object) -> dict[str, object]:
    return {**FAMILIES[name].settings, **changed}


SQUARE, AREAS = {"height": 896, "width": 896}, {"shortest_edge": 65_536, "longest_edge": 16_777_216}
SHAPES = {
    "tiny": EncoderShape(
        structs.replace(FAMILIES["gemma3"], judge=gemma3_sliding), (32, 32), "gemma3", "gemma3"
    ),
    "siglip-896": EncoderShape(
        structs.replace(FAMILIES["gemma3"], judge=siglip, settings=_settings("gemma3", size=SQUARE)),
        *((896, 896), "gemma3", "gemma3"),
    ),
    "qwen3-vl-1024x768": EncoderShape(
        structs.replace(
            FAMILIES["qwen3-vl"], judge=qwen3_vl, settings=_settings("qwen3-vl", size=AREAS, patch_size=16)
        ),
        *((1024, 768), "qwen3vl", "qwen3vl_merger"),
    ),
}


def even(parameter: torch.Tensor) -> tuple[float, float]:
    """Returns the mean and the standard deviation for a parameter, with which products keep the size of their input."""
    return (0.0, float(parameter[0].numel()) ** -0.5) if parameter.ndim > 1 else (1.0, 0.1)


def expected(shape: EncoderShape, judge: torch.nn.Module) -> F32Array:
    """Returns the rows of transformers, with the rows that are added to later layers next to them."""
    given = shape.family.inputs([picture(*shape.size)])
    with torch.no_grad():
        found = judge.get_submodule("model").get_image_features(**given)  # type: ignore[operator]
    rows = [found.pooler_output if found.pooler_output is not None else found.last_hidden_state]
    rows += list(getattr(found, "deepstack_features", None) or ())
    flat = [torch.cat([part.reshape(-1, part.shape[-1]) for part in each]) for each in rows]
    made: F32Array = np.concatenate([each.numpy() for each in flat], axis=1)
    return made


def error_of(rows: F32Array, law: F32Array) -> float:
    """Returns the largest error as a share of the range of `law`."""
    return float(np.abs(rows - law).max() / (law.max() - law.min()))


def ours(folder: Path, shape: EncoderShape, law: F32Array, weights: str, threads: int) -> Callable[[], Measured]:
    """Returns a function that encodes one picture with this engine. Each call uses a new key, so that no kept rows are
    used."""
    heart = build_sync(str(folder), {"weights": weights, "threads": threads, "context": 512, "kv_memory": "16MB"})
    if heart.eyes is None or heart.images is None:
        raise SystemExit(f"{folder} reads no images")
    kept, tiles = heart.images.kept, heart.eyes.open(AskedImage(png(picture(*shape.size)), False)).tiles
    count = 0

    def measure() -> Measured:
        nonlocal count
        count += 1
        fresh = [structs.replace(tile, key=-count * 100 - place) for place, tile in enumerate(tiles)]
        begin_s = time.perf_counter()
        rows = [kept.of(tile) for tile in fresh]
        seconds = time.perf_counter() - begin_s
        return Measured(f"twostroke {weights}", (seconds,), error_of(np.concatenate(rows), law))

    return measure


def mtmd(cli: Path, folder: Path, kind: str, threads: int) -> Callable[[], Measured]:
    """Returns a function that encodes the picture with llama.cpp. It reads the milliseconds of the encode from the
    output; the rows are not read."""
    files = [str(folder / name) for name in ("text.gguf", f"mmproj-{kind}.gguf", "picture.png")]
    words = [str(cli), "-m", files[0], "--mmproj", files[1], "--image", files[2], "-p", "?", "-n", "1"]
    words += ["--chat-template", "chatml"]

    def measure() -> Measured:
        done = subprocess.run([*words, "-t", str(threads)], capture_output=True, text=True, check=True)
        found = re.findall(r"image slice encoded in (\d+) ms", done.stdout + done.stderr)
        return Measured(f"llama.cpp {kind}", (sum(map(int, found)) / 1000,), None)

    return measure


OPENVINO = """
import json, sys, time
import numpy as np, openvino, torch, transformers
asked = json.load(open(sys.argv[1]))
judge = transformers.AutoModelForImageTextToText.from_pretrained(asked["folder"], dtype=torch.float32).eval()
given = {name: torch.tensor(np.load(path)) for name, path in asked["given"].items()}
class Tower(torch.nn.Module):
    def forward(self, pixels):
        found = judge.model.get_image_features(pixel_values=pixels, **rest)
        rows = found.pooler_output if found.pooler_output is not None else found.last_hidden_state
        return torch.cat([each.reshape(-1, each.shape[-1]) for each in rows])
pixels = given.pop("pixel_values")
rest = given
core = openvino.Core()
model = openvino.convert_model(Tower().eval(), example_input=pixels)
if asked["kind"] == "int8":
    import nncf
    model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
compiled = core.compile_model(model, "CPU", {"INFERENCE_NUM_THREADS": asked["threads"], "PERFORMANCE_HINT": "LATENCY"})
for _ in range(asked["rounds"]):
    begin = time.perf_counter()
    rows = compiled(pixels.numpy())[0]
    print(json.dumps(time.perf_counter() - begin), flush=True)
np.save(asked["rows"], rows)
"""


def openvino(
    python: Path, folder: Path, shape: EncoderShape, law: F32Array, kind: str, rounds: int, threads: int
) -> Measured:
    """Measures all rounds of OpenVINO in one process, because each start converts the model. The rows that are added to
    later layers are left out."""
    given = {}
    for name, value in shape.family.inputs([picture(*shape.size)]).items():
        given[name] = str(folder / f"{name}.npy")
        np.save(given[name], value.numpy())
    asked, rows = folder / "asked.json", folder / "rows.npy"
    facts = {"folder": str(folder), "given": given, "kind": kind, "threads": threads, "rounds": rounds}
    asked.write_text(json.dumps({**facts, "rows": str(rows)}))
    done = subprocess.run([str(python), "-c", OPENVINO, str(asked)], capture_output=True, text=True, check=True)
    seconds = tuple(map(float, done.stdout.split()))
    return Measured(f"OpenVINO {kind}", seconds[1:], error_of(np.load(rows), law[:, :WIDTH]))


def type_of(kind: Type, name: str, shape: tuple[int, ...]) -> Type:
    """Returns the type that llama.cpp's converter writes. Vectors and position embeddings are F32, and one projection
    is never quantized."""
    if len(shape) < 2 or "position_embd" in name:
        return Type.F32
    return Type.F16 if "input_projection" in name else kind


def write_files(folder: Path, shape: EncoderShape) -> Path:
    """Writes the GGUF files for llama.cpp, and the picture, to a new folder. Returns the folder."""
    files = folder / "files"
    files.mkdir()
    write_text(folder, files / "text.gguf", shape.arch)
    for kind in (Type.F16, Type.Q8_0):
        write_projector(folder, files / f"mmproj-{kind.name}.gguf", shape.word, partial(type_of, kind))
    (files / "picture.png").write_bytes(png(picture(*shape.size)))
    return files


def by_turns(ways: Sequence[Callable[[], Measured]], rounds: int) -> list[Measured]:
    """Returns the figures of each way over all rounds; the first round is left out."""
    found = [[way() for way in ways] for _ in range(rounds + 1)][1:]
    return [
        structs.replace(each[0], seconds=tuple(one.seconds[0] for one in each)) for each in zip(*found, strict=True)
    ]


def measure_shape(name: str, asked: argparse.Namespace) -> list[Measured]:
    """Measures one shape in all engines that were asked for."""
    shape = SHAPES[name]
    if asked.layers is not None:
        judge = partial(shape.family.judge, asked.layers)
        shape = structs.replace(shape, family=structs.replace(shape.family, judge=judge))
    with tempfile.TemporaryDirectory(prefix="encoder-") as place:
        folder = Path(place)
        law = expected(shape, shape.family.write(folder, even))
        ways = [ours(folder, shape, law, weights, asked.threads) for weights in asked.weights.split(",")]
        peers = dict(asked.peer)
        if cli := peers.get("llama.cpp"):
            files = write_files(folder, shape)
            ways += [mtmd(cli, files, kind, asked.threads) for kind in ("F16", "Q8_0")]
        found = by_turns(ways, asked.rounds)
        if python := peers.get("openvino"):
            for kind in ("f32", "int8"):
                rest = (asked.rounds + 1, asked.threads)
                found.append(openvino(python, folder, shape, law, kind, *rest))
        return found


def peer_of(text: str) -> tuple[str, Path]:
    """Parses "llama.cpp=build/bin/llama-mtmd-cli" into a name and a path. Raises ArgumentTypeError for other forms."""
    name, _, path = text.partition("=")
    if name not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=PATH; names are {', '.join(PEERS)}")
    return name, Path(path)


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="siglip-896,qwen3-vl-1024x768")
    parser.add_argument("--weights", default="int8,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, help="Layers of the tower; without it, those of the published model.")
    parser.add_argument("--peer", type=peer_of, action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    report = {}
    for name in asked.shapes.split(","):
        found = measure_shape(name, asked)
        print("\n".join([name, *(f"  {each.line()}" for each in found)]), flush=True)
        report[name] = [structs.asdict(each) for each in found]
    if asked.save is not None:
        asked.save.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
