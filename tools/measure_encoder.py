"""Seconds and errors of encoders of images with random weights: here, in llama.cpp's mtmd and in OpenVINO.

    python -m tools.measure_encoder [--shapes siglip-896,qwen3-vl-1024x768] [--weights int8,int16,bf16] [--rounds 3]
        [--layers 3,5] [--threads 2] [--clock wall] [--peer llama.cpp=PYTHON] [--peer openvino=PYTHON]
        [--save FILE.json]

From pixels to image rows. A tower is measured with two small numbers of layers, by default 3 and 5. The rule for the
published number of layers: the difference between the two times is the time of the layers between them, each layer
takes the same time, and what is left of the smaller time is the rest. All engines take turns, once more than --rounds,
and the first round counts as warm-up; the median counts. An error is the largest difference from transformers in
float32, as a share of the range of all rows, after the larger number of layers.

The figures of a shape are written as soon as they are there. The tool names an engine or a shape that fails, and leaves
it out.

The share of the limit: the operations of an encode (a multiply-add is two), over its seconds, over what the loops of
`twostroke doctor` reach: in int8 where weights are int8 or int16, otherwise in float32. Two codes for a weight count
as one operation.

PYTHON is the interpreter of an environment: with llama_cpp_python, whose libraries MTMD_CPP_LIB may name, and with
openvino, nncf, torch and transformers. `--clock cpu` counts processor seconds over the number of threads, for a
machine that others use as well; peers' threads that wait in a loop count as busy there, so take --threads 1 with it.
The shape `tiny` tries the script.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from msgspec import Struct, structs
from tests.vision.families.family import TEXT, Family, library
from tests.vision.families.gemma3 import GEMMA_MARKS
from tests.vision.families.qwen import qwen_ids
from tests.vision.families.registry import FAMILIES
from tests.vision.folders import picture, png
from tests.vision.projectors import write_projector, write_text
from tools.encoder_peers import LLAMA, OPENVINO, Peer

from twostroke.assembly.engine import build_sync
from twostroke.backends.cpu.limits import LimitMeter
from twostroke.images.parts import AskedImage
from twostroke.ops.operands import F32Array

Keep = Callable[[str, "list[Figures]"], None]
PEERS = ("llama.cpp", "openvino")
WIDTH = 2560
"""The hidden size of the language models: that of models with 4B parameters. They have two layers, which are not
computed."""


class EncoderShape(Struct, frozen=True):
    """family: the family with the tower's real sizes. size: the size of the picture in pixels. arch, word: the names of
    the two models in a GGUF file. layers: the layers of the published tower."""

    family: Family
    size: tuple[int, int]
    arch: str
    word: str
    layers: int


class Way(Struct, frozen=True):
    """One engine with one tower. encode: encodes the picture once and returns the seconds. rows: returns the rows of
    the first encode."""

    engine: str
    encode: Callable[[], float]
    rows: Callable[[], F32Array]
    flops: int = 0


class Measured(Struct, frozen=True):
    """The median seconds of one engine with one tower, its error, and the operations of an encode where they are
    counted."""

    seconds: float
    error: float
    flops: int


class Figures(Struct, frozen=True):
    """The seconds of an encode with few and with more layers, and those of the published tower by the rule. error: the
    largest difference from transformers. share: the share of the machine's limit; 0 where nobody counts operations."""

    engine: str
    few_s: float
    more_s: float
    layer_s: float
    whole_s: float
    error: float
    share: float = 0.0

    def line(self) -> str:
        """Returns the figures as one line for people."""
        share = f", {self.share:.0%} of the limit" if self.share else ""
        each = f"{1e3 * self.layer_s:7.1f} ms a layer"
        return f"{self.engine:<20} {self.whole_s:7.2f} s ({each}), error {self.error:.1e}{share}"


def siglip(layers: int = 27, **changed: int) -> torch.nn.Module:
    """Returns SigLIP so400m at 896 x 896, as Gemma 3 has it, with random weights. changed: fields of vision_config."""
    find = library(GEMMA_MARKS).token_to_id
    text = {**TEXT, "hidden_size": WIDTH, "num_hidden_layers": 2, "head_dim": 16, "query_pre_attn_scalar": 16}
    config = transformers.Gemma3Config(
        text_config={**text, "sliding_window": 12, "layer_types": ["sliding_attention"] * 2},
        vision_config={
            **{"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": layers, "num_attention_heads": 16},
            **{"image_size": 896, "patch_size": 14, "model_type": "siglip_vision_model", **changed},
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
            "deepstack_visual_indexes": [5, 11, 17] if layers > 17 else [0, 1, 2],
        },
        tie_word_embeddings=False,
        **qwen_ids(),
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    return transformers.Qwen3VLForConditionalGeneration(config)


def _settings(name: str, **changed: object) -> dict[str, object]:
    return {**FAMILIES[name].settings, **changed}


TINY = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 2, "image_size": 64, "patch_size": 4}
SQUARE, AREAS = {"height": 896, "width": 896}, {"shortest_edge": 65_536, "longest_edge": 16_777_216}
SHAPES = {
    "tiny": EncoderShape(
        structs.replace(
            FAMILIES["gemma3"],
            judge=partial(siglip, **TINY),
            settings=_settings("gemma3", size={"height": 64, "width": 64}),
        ),
        *((64, 64), "gemma3", "gemma3", 27),
    ),
    "siglip-896": EncoderShape(
        structs.replace(FAMILIES["gemma3"], judge=siglip, settings=_settings("gemma3", size=SQUARE)),
        *((896, 896), "gemma3", "gemma3", 27),
    ),
    "qwen3-vl-1024x768": EncoderShape(
        structs.replace(
            FAMILIES["qwen3-vl"], judge=qwen3_vl, settings=_settings("qwen3-vl", size=AREAS, patch_size=16)
        ),
        *((1024, 768), "qwen3vl", "qwen3vl_merger", 24),
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


def ours(folder: Path, shape: EncoderShape, weights: str, asked: argparse.Namespace, opened: ExitStack) -> Way:
    """Returns this engine with one format of the encoder. Each encode uses a new key, so that no kept rows are used."""
    options = {
        "weights": "int8",
        "encoder_weights": weights,
        "threads": asked.threads,
        "context": 512,
        "kv_memory": "16MB",
    }
    heart = opened.enter_context(build_sync(str(folder), options))
    if heart.eyes is None or heart.images is None:
        raise SystemExit(f"{folder} reads no images")
    kept, tiles = heart.images.kept, heart.eyes.open(AskedImage(png(picture(*shape.size)), False)).tiles
    clock = time.process_time if asked.clock == "cpu" else time.perf_counter
    count = 0

    def encode() -> float:
        nonlocal count
        count += 1
        begin_s = clock()
        for place, tile in enumerate(tiles):
            kept.of(structs.replace(tile, key=-count * 100 - place))
        return clock() - begin_s

    def rows() -> F32Array:
        return np.concatenate([kept.made_of(tile) for tile in tiles])

    return Way(f"twostroke {weights}", encode, rows, sum(map(kept.cost.flops, tiles)))


def openvino(
    python: Path, folder: Path, shape: EncoderShape, kind: str, asked: argparse.Namespace, opened: ExitStack
) -> Way:
    """Returns OpenVINO with one kind of weights."""
    own, given = folder / f"openvino-{kind}", {}
    own.mkdir()
    for name, value in shape.family.inputs([picture(*shape.size)]).items():
        given[name] = str(own / f"{name}.npy")
        np.save(given[name], value.numpy())
    facts = {"folder": str(folder), "given": given, "kind": kind, "threads": asked.threads, "clock": asked.clock}
    peer = opened.enter_context(Peer(python, OPENVINO, own, facts))
    return Way(f"OpenVINO {kind}", peer.encode, peer.rows)


def llama(
    python: Path, folder: Path, shape: EncoderShape, kind: Type, asked: argparse.Namespace, opened: ExitStack
) -> Way:
    """Returns llama.cpp with the encoder in one kind of mmproj file."""
    own = folder / f"llama-{kind.name}"
    own.mkdir()
    text, encoder, seen = own / "text.gguf", own / "mmproj.gguf", own / "picture.npy"
    write_text(folder, text, shape.arch)
    write_projector(folder, encoder, shape.word, partial(type_of, kind))
    np.save(seen, np.asarray(picture(*shape.size)))
    files = {"text": str(text), "encoder": str(encoder), "picture": str(seen)}
    peer = Peer(python, LLAMA, own, {**files, "threads": asked.threads, "clock": asked.clock})
    return Way(f"llama.cpp {kind.name}", opened.enter_context(peer).encode, peer.rows)


def type_of(kind: Type, name: str, shape: tuple[int, ...]) -> Type:
    """Returns the type that llama.cpp's converter writes. Vectors and position embeddings are F32, and one projection
    is never quantized."""
    if len(shape) < 2 or "position_embd" in name:
        return Type.F32
    return Type.F16 if "input_projection" in name else kind


def ways_of(folder: Path, shape: EncoderShape, asked: argparse.Namespace, opened: ExitStack) -> list[Way]:
    """Returns all engines that were asked for, with the tower in this folder."""
    found = [ours(folder, shape, weights, asked, opened) for weights in asked.weights.split(",") if weights]
    peers = dict(asked.peer)
    if python := peers.get("llama.cpp"):
        found += [llama(python, folder, shape, kind, asked, opened) for kind in (Type.F16, Type.Q8_0)]
    if python := peers.get("openvino"):
        found += [openvino(python, folder, shape, kind, asked, opened) for kind in ("usual", "f32", "int8")]
    return found


def measured(shape: EncoderShape, layers: int, asked: argparse.Namespace) -> dict[str, Measured]:
    """Returns the figures of each engine with a tower of so many layers. An engine that fails is named and left out."""
    family = structs.replace(shape.family, judge=partial(shape.family.judge, layers))
    own = structs.replace(shape, family=family)
    with tempfile.TemporaryDirectory(prefix="encoder-") as place, ExitStack() as opened:
        folder = Path(place)
        law = expected(own, family.write(folder, even))
        ways = {way.engine: way for way in ways_of(folder, own, asked, opened)}
        seconds: dict[str, list[float]] = {engine: [] for engine in ways}
        for _ in range(asked.rounds + 1):
            for engine, way in list(ways.items()):
                try:
                    seconds[engine].append(way.encode() / asked.clock_threads)
                except RuntimeError as error:
                    print(f"{engine} fails with {layers} layers: {error}", flush=True)
                    del ways[engine]
        usual = {engine: statistics.median(seconds[engine][1:]) for engine in ways}
        return {engine: Measured(usual[engine], error_of(way.rows(), law), way.flops) for engine, way in ways.items()}


def scaled(layers: int, measured_layers: tuple[int, int], few: float, more: float) -> float:
    """Returns the figure of a tower with `layers` layers from its figures with few and with more of them."""
    least, most = measured_layers
    return few + (layers - least) * (more - few) / (most - least)


def measure_shape(shape: EncoderShape, asked: argparse.Namespace, rates: Mapping[str, float]) -> list[Figures]:
    """Measures one shape in all engines that were asked for. rates: operations a second, by arithmetic."""
    few, more = asked.layers
    smaller, larger = (measured(shape, layers, asked) for layers in asked.layers)
    counted = (min((each.flops for each in found.values() if each.flops), default=0) for found in (smaller, larger))
    found, flops = [], scaled(shape.layers, asked.layers, *counted)
    for engine, most in larger.items():
        if (least := smaller.get(engine)) is None:
            continue
        layer_s = (most.seconds - least.seconds) / (more - few)
        whole_s = scaled(shape.layers, asked.layers, least.seconds, most.seconds)
        rate = rates["int8" if "int" in engine else "f32"]
        share = flops / whole_s / rate
        found.append(Figures(engine, least.seconds, most.seconds, layer_s, whole_s, most.error, share))
    return found


def measure_shapes(
    shapes: Mapping[str, EncoderShape], asked: argparse.Namespace, rates: Mapping[str, float], keep: Keep
) -> list[str]:
    """Measures one shape after the other. keep: takes the figures of a shape as soon as they are there. Returns the
    names of the shapes that failed; the others are measured all the same."""
    failed = []
    for name, shape in shapes.items():
        try:
            keep(name, measure_shape(shape, asked, rates))
        except Exception as error:
            print(f"{name} fails: {type(error).__name__}: {error}", flush=True)
            failed.append(name)
    return failed


def peer_of(text: str) -> tuple[str, Path]:
    """Parses "openvino=venv/bin/python" into a name and a path. Raises ArgumentTypeError for other forms."""
    name, _, path = text.partition("=")
    if name not in PEERS or not path:
        raise argparse.ArgumentTypeError(f"{text} is not NAME=PATH; names are {', '.join(PEERS)}")
    return name, Path(path)


def two_numbers(text: str) -> tuple[int, int]:
    """Parses "3,5". Raises ValueError for other forms."""
    few, more = map(int, text.split(","))
    if not 0 < few < more:
        raise ValueError(text)
    return few, more


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="siglip-896,qwen3-vl-1024x768")
    parser.add_argument("--weights", default="int8,int16,bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=two_numbers, default=(3, 5))
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall")
    parser.add_argument("--peer", type=peer_of, action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--save", type=Path)
    asked = parser.parse_args()
    asked.clock_threads = asked.threads if asked.clock == "cpu" else 1
    clock = time.process_time if asked.clock == "cpu" and asked.threads == 1 else time.perf_counter
    with closing(LimitMeter(asked.threads, clock)) as meter:
        limits = meter.measure()
    print(limits.words())
    rates = {"f32": limits.f32_flops_per_s, "int8": limits.int8_ops_per_s}
    report: dict[str, Any] = {"limits": limits.as_json()}

    def keep(name: str, found: list[Figures]) -> None:
        print("\n".join([name, *(f"  {each.line()}" for each in found)]), flush=True)
        report[name] = [structs.asdict(each) for each in found]
        if asked.save is not None:
            asked.save.write_text(json.dumps(report, indent=2) + "\n")

    failed = measure_shapes({name: SHAPES[name] for name in asked.shapes.split(",")}, asked, rates, keep)
    if failed:
        raise SystemExit(f"not measured: {', '.join(failed)}")


if __name__ == "__main__":
    main()
