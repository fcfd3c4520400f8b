"""Measures the gaps of a stream before and while one server opens, resizes and encodes a large image next to it.

    python -m tools.measure_gaps [--shape qwen3-vl] [--width 512] [--side 4096] [--layers 6] [--threads 2]
        [--talker-width 256] [--talker-layers 6] [--whole-spans] [--save FILE.json]

The model has random weights and the tower of a family (qwen3-vl, gemma3, smolvlm) with the given width and layers. The
tiles have the family's published size. The language model is small; that of gemma3 may be given another size, and with
--whole-spans the rows of an image, which see each other, are one step of it. A gap is the time between the ends of two
steps with a token of the stream. The text of a random token may wait for the next one, so its events are no measure.
For the steps that worked on the image, the tool tells by kind of piece how many times longer than predicted the pieces
took: next to the cost model alone, and next to the prediction that was learned from the pieces before them. The
processor seconds of a step, over the threads, are told next to its longest time: where the second is much larger, other
programs used the cores. For a quiet machine: the bound of the default rule is 250 ms.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from msgspec import Struct, structs
from PIL import Image
from tests.serve.harness import Live, serving
from tests.vision import folders
from tests.vision.families.family import TEXT
from tests.vision.families.qwen import qwen_ids
from tests.vision.families.registry import FAMILIES
from tests.vision.served.test_input import part, text, url_of
from tools.measure_encoder import SQUARE, even, siglip

from twostroke.engine.scheduler.estimates.piece_times import PieceTimes
from twostroke.runner.images.span_runner import SpanRunner
from twostroke.runner.runner import ModelRunner
from twostroke.server.build import build_server
from twostroke.types.encode import PieceKind
from twostroke.types.plan import Plan
from twostroke.types.result import StepResult

TALKER = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 6, "head_dim": 64}
"""The sizes of the language models. Their streams last longer than the image."""
PATH, SETTLED_S, WAIT_S = "/v1/chat/completions", 2.0, 1800.0


class Gaps(Struct, frozen=True):
    """The figures of the gaps between two events, in milliseconds."""

    count: int
    median: float
    p99: float
    longest: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Gaps:
        """Returns the figures of gaps in seconds. There must be at least one gap."""
        found = sorted(seconds)
        shares = (found[min(len(found) - 1, int(share * len(found)))] for share in (0.5, 0.99, 1.0))
        return cls(len(found), *(round(1e3 * each, 1) for each in shares))


class Watched:
    """Collects the ends of the steps with tokens. Of the steps that worked on an image it collects their seconds, their
    processor seconds, and the seconds planned for the image. For each kind of piece it collects the seconds of the cost
    model, those that were learned, and the measured ones."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, float, float]] = []
        self.ends: list[float] = []
        self.pieces: dict[PieceKind, list[tuple[float, float, float]]] = {}
        execute, learned = ModelRunner.execute, PieceTimes()

        def noted(runner: ModelRunner, plan: Plan) -> StepResult:
            begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
            result = execute(runner, plan)
            if plan.sequences:
                self.ends.append(time.perf_counter())
            if plan.encode is not None:
                spent_s, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
                self.steps.append((spent_s, cpu_s, plan.encode_s))
                for each in result.encodes.times:
                    usual_s = learned.usual_s({each.kind: each.predicted_s})
                    self.pieces.setdefault(each.kind, []).append((each.predicted_s, usual_s, each.seconds))
                learned.learn(result.encodes.times)
            return result

        ModelRunner.execute = noted  # type: ignore[method-assign, assignment]

    def facts(self, threads: int) -> dict[str, Any]:
        """Returns the figures for people, in milliseconds."""
        if not self.steps:
            return {"steps": 0}
        whole, cpu, planned = zip(*self.steps, strict=True)
        return {
            "steps": len(whole),
            "longest_step": round(1e3 * max(whole), 1),
            "longest_step_of_the_processor": round(1e3 * max(cpu) / threads, 1),
            "most_planned": round(1e3 * max(planned), 1),
            "pieces": {kind.name.lower(): _ratios(times) for kind, times in self.pieces.items()},
        }


def _ratios(times: Sequence[tuple[float, float, float]]) -> dict[str, float]:
    """Returns how many times longer than predicted pieces took. times: the predicted, learned and measured seconds."""
    predicted, learned, measured = (sum(each) for each in zip(*times, strict=True))
    ratios = {"to_model": measured / predicted, "to_learned": measured / learned}
    return {"pieces": len(times), **{name: round(ratio, 3) for name, ratio in ratios.items()}}


def judge(width: int, layers: int) -> torch.nn.Module:
    """Returns a tower of this width with a small language model."""
    turn = {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [11, 11, 10], "mrope_interleaved": True}
    config = transformers.Qwen3VLConfig(
        text_config={**TEXT, **TALKER, "rope_parameters": turn, "max_position_embeddings": 16_384},
        vision_config={
            **{"depth": layers, "hidden_size": width, "intermediate_size": 4 * width, "num_heads": width // 64},
            **{"patch_size": 16, "num_position_embeddings": 2304, "out_hidden_size": 256},
            "deepstack_visual_indexes": [0],
        },
        tie_word_embeddings=False,
        **qwen_ids(),
    )
    config.architectures = ["Qwen3VLForConditionalGeneration"]
    return transformers.Qwen3VLForConditionalGeneration(config)


def write_qwen(folder: Path, width: int, layers: int) -> None:
    """Writes the folder of a Qwen3-VL: one tile, as large as `--image-tokens` allows."""
    areas = {"shortest_edge": 65_536, "longest_edge": 16_777_216}
    family = FAMILIES["qwen3-vl"]
    settings = {**family.settings, "size": areas, "patch_size": 16}
    structs.replace(family, judge=lambda: judge(width, layers), settings=settings).write(folder)


def gemma(width: int, layers: int) -> torch.nn.Module:
    """Returns the towers of Gemma 3 with a language model of TALKER's size."""
    tower = {"hidden_size": width, "intermediate_size": 4 * width, "num_attention_heads": width // 64}
    config: Any = siglip(1, **tower).config
    for changed, own in ((config.text_config, TALKER), (config.vision_config, {"num_hidden_layers": layers})):
        for name, value in own.items():
            setattr(changed, name, value)
    config.text_config.layer_types = ["sliding_attention"] * TALKER["num_hidden_layers"]
    return transformers.Gemma3ForConditionalGeneration(config)


def write_gemma(folder: Path, width: int, layers: int) -> None:
    """Writes the folder of a Gemma 3: one tile of 896 x 896, whose 256 rows see each other."""
    family = FAMILIES["gemma3"]
    settings = {**family.settings, "size": SQUARE}
    structs.replace(family, judge=partial(gemma, width, layers), settings=settings).write(folder, even)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"]["max_position_embeddings"] = 16_384
    (folder / "config.json").write_text(json.dumps(config))


def write_smolvlm(folder: Path, width: int, layers: int) -> None:
    """Writes the folder of a SmolVLM: 16 tiles of 512 x 512 and the whole image, of 64 rows each."""
    config = transformers.SmolVLMConfig(
        text_config={**folders.TEXT, **TALKER, "max_position_embeddings": 16_384},
        vision_config={
            **{"hidden_size": width, "intermediate_size": 4 * width, "num_hidden_layers": layers},
            **{"num_attention_heads": width // 64, "image_size": 512, "patch_size": 16},
        },
        scale_factor=4,
        image_token_id=folders.image_token(),
        tie_word_embeddings=False,
        architectures=["SmolVLMForConditionalGeneration"],
    )
    made = transformers.SmolVLMForConditionalGeneration(config).eval().float()
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, *even(parameter))
    made.save_pretrained(folder)
    folders.library().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<end_of_utterance>"}))
    (folder / "chat_template.jinja").write_text(folders.TEMPLATE)
    folders.with_settings(folder, size={"longest_edge": 2048}, max_image_size={"longest_edge": 512})


SHAPES: Mapping[str, Callable[[Path, int, int], None]] = {
    "qwen3-vl": write_qwen,
    "gemma3": write_gemma,
    "smolvlm": write_smolvlm,
}


def asked(live: Live, content: Any, **more: Any) -> http.client.HTTPResponse:
    """Sends a request. Returns its answer, whose body is not read yet."""
    connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=WAIT_S)
    body = {"messages": [{"role": "user", "content": content}], "temperature": 0, **more}
    connection.request("POST", PATH, json.dumps(body), {"Content-Type": "application/json"})
    return connection.getresponse()


def measure(live: Live, image: str, ends: Sequence[float]) -> dict[str, Any]:
    """Measures the gaps of a stream, first alone and after some seconds with the image next to it. ends: grows by the
    end of each step with tokens."""
    over = threading.Event()

    def read() -> None:
        answer = asked(live, [text("words")], max_tokens=16_000, ignore_eos=True, stream=True)
        while not over.is_set() and answer.readline():
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    time.sleep(SETTLED_S)
    begin_s = time.perf_counter()
    answer = asked(live, [part(image), text("x")], max_tokens=4)
    said = answer.read()
    if answer.status != 200:
        raise SystemExit(said.decode())
    end_s = time.perf_counter()
    over.set()
    reader.join(10)
    gaps = [(at, at - before) for before, at in zip(ends, ends[1:], strict=False)]
    before, during = ([gap for at, gap in gaps if begin <= at < end] for begin, end in ((0, begin_s), (begin_s, end_s)))
    return {
        "status": answer.status,
        "image_s": end_s - begin_s,
        "before": structs.asdict(Gaps.of(before)),
        "during": structs.asdict(Gaps.of(during)),
    }


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, usual in (("--width", 512), ("--side", 4096), ("--layers", 6), ("--threads", 2)):
        parser.add_argument(name, type=int, default=usual)
    for name, usual in (("--talker-width", TALKER["hidden_size"]), ("--talker-layers", TALKER["num_hidden_layers"])):
        parser.add_argument(name, type=int, default=usual)
    parser.add_argument("--whole-spans", action="store_true")
    parser.add_argument("--shape", choices=SHAPES, default="qwen3-vl")
    parser.add_argument("--save", type=Path)
    given = parser.parse_args()
    if given.talker_width != TALKER["hidden_size"]:
        TALKER.update(hidden_size=given.talker_width, intermediate_size=4 * given.talker_width)
    TALKER["num_hidden_layers"] = given.talker_layers
    if given.whole_spans:
        SpanRunner.cost = lambda _own, _steps: None  # type: ignore[method-assign, assignment, return-value]
    made = io.BytesIO()
    Image.effect_noise((given.side, given.side), 25).save(made, "JPEG", quality=85)
    with tempfile.TemporaryDirectory(prefix="gaps-") as folder:
        SHAPES[given.shape](Path(folder), given.width, given.layers)
        watched = Watched()
        options = {"weights": "int8", "context": 16_384, "threads": given.threads, "kv_memory": "100MB"}
        with build_server(folder, options) as built, serving(built.parts) as live:
            found = measure(live, url_of(made.getvalue(), "image/jpeg"), watched.ends)
    report = json.dumps({**found, "encode": watched.facts(given.threads)}, indent=2)
    print(report)
    if given.save is not None:
        given.save.write_text(report + "\n")


if __name__ == "__main__":
    main()
