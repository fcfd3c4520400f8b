"""MiniCPM-V: numbers of images, slices, nearest places, and places on a canvas, compared with transformers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from tests.serve.harness import Live, serving
from tests.vision.folders import picture, png, user, write_family
from tests.vision.served.test_input import OPTIONS, chat, part, text, url_of
from tests.vision.test_exactness import bits, opened
from tests.vision.towers import found_encoder
from twostroke import LLM
from twostroke.cli.main import main
from twostroke.images.families import minicpm_v
from twostroke.images.families.registry import read_processor, read_settings
from twostroke.models.common.sight import Between
from twostroke.runner.images.patch_layout import taps
from twostroke.runner.images.text_places import _spread, places_of
from twostroke.server.build import build_server
from twostroke.types.errors import InvalidRequest, ModelError
from twostroke.types.images import ImageSpan
from twostroke.types.output import Prompt
from twostroke.types.sampling.sampling_params import SamplingParams

PARAMS = SamplingParams(max_tokens=6, temperature=0.0, logprobs=2, ignore_eos=True)
FOLD = 4
"""The patches on each side of an image row."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("minicpm")
    write_family("minicpm-v-4.7", made)
    return made


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    made: Path = tmp_path_factory.mktemp("served")
    write_family("minicpm-v-4.6", made)
    with build_server(str(made), OPTIONS) as built, serving(built.parts) as found:
        yield found


def changed(folder: Path, target: Path, file: str = "preprocessor_config.json", **fields: Any) -> Path:
    """The same folder with other fields in one of its files."""
    target.mkdir(exist_ok=True)
    for each in folder.iterdir():
        (target / each.name).write_bytes(each.read_bytes())
    values = json.loads((folder / file).read_text())
    (target / file).write_text(json.dumps({**values, **fields}))
    return target


@pytest.mark.parametrize("side", [70, 32, 5])
def test_a_patch_takes_the_place_that_transformers_takes(side: int) -> None:
    import torch
    from transformers.vision_utils import get_vision_nearest_position_ids

    for count in range(1, 300):
        (found,), (shares,) = taps(count, side, Between.NEAREST)
        law = get_vision_nearest_position_ids(torch.tensor([[count, 1]]), side).numpy() // side
        assert np.array_equal(found, law) and (shares == 1).all()


def test_whole_images_are_spread_over_a_canvas_as_transformers_does() -> None:
    import torch

    for count in range(1, 40):
        for length in range(count, 150):
            law = torch.linspace(0, length - 1, count).round().long().numpy()
            assert np.array_equal(_spread(count, length), law), (count, length)


def rendered(llm: LLM, *parts: Any, low: bool = False) -> tuple[list[int], tuple[ImageSpan, ...]]:
    message = user(*parts)
    for each in message["content"] if low else ():
        each["detail"] = "low"
    made = llm._rendered([message], False)
    ids = llm.tokenizer.encode_rendered(made.text, quoted=made.quoted)
    return list(ids), () if made.pictures is None else made.pictures.spans(tuple(ids))


PROMPTS = {
    "one": ["Look: ", picture(30, 30), " there"],
    "slices": [picture(90, 31), "\nwide"],
    "lines of slices": [picture(40, 120), "\n\n\nhigh"],
    "a square of slices": ["a", picture(64, 64), picture(100, 30), "b"],
    "neighbours": [picture(20, 20), picture(31, 30), "\n", picture(70, 70), "\n"],
    "many": ["a", picture(70, 40), "\nb\n", picture(30, 30, 2), picture(20, 60), "\n c"],
}


@pytest.mark.parametrize("numbered", [True, False])
def test_places_are_those_of_transformers(folder: Path, tmp_path: Path, numbered: bool) -> None:
    import torch
    from transformers.models.minicpmv4_7.modeling_minicpmv4_7 import MiniCPMV4_7Model

    config = json.loads((folder / "config.json").read_text())
    judge: Any = SimpleNamespace(config=SimpleNamespace(**config), _frame_end_idx=MiniCPMV4_7Model._frame_end_idx)
    for name in ("_group_visual_frames", "get_vision_position_ids"):
        setattr(judge, name, getattr(MiniCPMV4_7Model, name).__get__(judge))
    own, seen = changed(folder, tmp_path / "own", use_image_id=numbered), 0
    with opened(own) as llm:
        for name, parts in PROMPTS.items():
            ids, spans = rendered(llm, *parts)
            sizes = [[FOLD * span.tile.lines, FOLD * span.tile.columns] for span in spans]
            types = torch.tensor([[int(each == config["image_token_id"]) for each in ids]])
            law, _ = MiniCPMV4_7Model.get_rope_index(judge, torch.tensor([ids]), types, torch.tensor(sizes))
            found = places_of(spans, 0, len(ids))
            assert np.array_equal(found, law[:, 0].numpy()), name
            for start in range(0, len(ids), 3):
                for end in (start + 1, start + 7):
                    end = min(end, len(ids))
                    assert np.array_equal(places_of(spans, start, end), found[:, start:end]), (name, start, end)
            later = places_of(spans, len(ids), len(ids) + 3)
            assert np.array_equal(later, np.repeat(found.max() + 1 + np.arange(3)[None], 3, 0)), name
            seen += sum(span.canvas is not None and not span.canvas.is_whole for span in spans)
    assert seen > 20, "most of these images have slices"


def test_a_tile_on_another_canvas_has_another_key(folder: Path, tmp_path: Path) -> None:
    """In a model without a canvas, the whole image has the same rows and the same pages with slices and without."""
    plain = tmp_path / "plain"
    plain.mkdir()
    write_family("minicpm-v-4.6", plain)
    for path, equal in ((folder, False), (plain, True)):
        with opened(path) as llm:
            _, spans = rendered(llm, picture(70, 40))
            _, low = rendered(llm, picture(70, 40), low=True)
            assert len(spans) > 2 and len(low) == 1 and spans[0].tile.pixels == low[0].tile.pixels
            assert (spans[0].tile.key == low[0].tile.key) is equal


def test_an_image_at_the_end_of_a_prompt_shares_no_pages_with_one_before_text(folder: Path) -> None:
    """The model makes newlines after the image, which are text after the first prompt and marks in the second."""
    newline = json.loads((folder / "config.json").read_text())["newline_id"]
    with opened(folder) as llm:
        made = llm._rendered([user("See", picture(70, 40))], False)
        ids = llm.tokenizer.encode_rendered(made.text, quoted=made.quoted)
        assert made.pictures is not None
        last = made.pictures.spans(tuple(ids))[-1].end + 1
        first, longer = tuple(ids[:last]), (*ids[:last], *[newline] * 20, *ids[last:])
        spans = [made.pictures.spans(each) for each in (first, longer)]
        assert spans[0][-1].canvas == structs.replace(spans[1][-1].canvas, ends=last)
        assert spans[1][-1].canvas is not None and spans[1][-1].canvas.ends == last + 20
        assert spans[0][-1].tile.key != spans[1][-1].tile.key and spans[0][0].tile.key == spans[1][0].tile.key
        forced = replace(PARAMS, logit_bias={newline: 100.0}, max_tokens=24)
        alone = bits(llm.engine.generate([Prompt(longer, PARAMS, images=spans[1], cache_salt="alone")])[0])
        (made_first,) = llm.engine.generate([Prompt(first, forced, images=spans[0])])
        assert set(made_first.completions[0].token_ids) == {newline}
        found = llm.engine.generate([Prompt(longer, PARAMS, images=spans[1])])[0]
        assert bits(found) == alone and found.num_cached_tokens > 0


def test_tiles_of_every_allowed_shape_have_no_more_rows_than_are_planned(folder: Path) -> None:
    sight = found_encoder(folder).sight
    for scale in (32, 48, 112):
        settings = {**read_settings(folder), "scale_resolution": scale}
        processor = read_processor(sight.family, sight.tiling(4096), settings)
        widest = 0
        for height in (1, 2, 3, 5, 7, 16, 31, 32, 33, 50, 100):
            for ratio in (1, 1.5, 2, 5, 10, 27, 60, 99, 140, 199, minicpm_v.MOST_RATIO):
                for size in ((round(height * ratio), height), (height, round(height * ratio))):
                    lines = processor.cut(*size).lines(sight.patching)
                    widest = max(widest, *(rows * columns for rows, columns in lines))
        assert 0.7 * processor.most_rows < widest <= processor.most_rows
        with pytest.raises(InvalidRequest, match="narrow"):
            processor.cut(900, 1)


def test_fewer_rows_are_made_where_fewer_are_allowed(folder: Path) -> None:
    sight = found_encoder(folder).sight
    for most in (1, 4, 9, 64):
        processor = read_processor(sight.family, sight.tiling(most), {**read_settings(folder), "scale_resolution": 128})
        lines = processor.cut(400, 300).lines(sight.patching)
        assert all(rows * columns <= most for rows, columns in lines) and processor.most_rows <= most


BAD = {
    "downsample_mode": ("preprocessor_config.json", "4x"),
    "small_image_upsize": ("preprocessor_config.json", "adaptive"),
    "patch_size": ("preprocessor_config.json", 14),
    "do_resize": ("preprocessor_config.json", False),
    "merger_times": ("config.json", 2),
    "merge_kernel_size": ("config.json", [1, 1]),
    "insert_layer_id": ("config.json", 3),
    "newline_id": ("config.json", None),
    "image_token_id": ("config.json", None),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_not_implemented_is_refused_by_its_name(folder: Path, tmp_path: Path, name: str) -> None:
    file, value = BAD[name]
    own = changed(folder, tmp_path / "own", file, **{name: value})
    with pytest.raises(ModelError, match=name):
        sight = found_encoder(own).sight
        read_processor(sight.family, sight.tiling(4096), read_settings(own))
    with opened(own) as llm:
        assert llm.resolved["images"] == "off"
        assert llm.chat([user("Words.")], PARAMS).completions[0].token_ids


MARKS = "<|image_pad|> <image></image> <slice></slice> <image_id>0</image_id>"


def test_marks_in_a_users_text_are_text(live: Live) -> None:
    image = part(url_of(picture(70, 40)))
    plain, forged = chat(live, [image, text("x")]), chat(live, [image, text(MARKS)])
    assert plain.status == forged.status == 200
    assert forged.json["usage"]["prompt_tokens"] - plain.json["usage"]["prompt_tokens"] == len(MARKS) - 1
    refused = chat(live, [image, text(MARKS)], parse_special=True)
    assert refused.status == 400 and "placed 2 of 1 images" in refused.json["error"]["message"]


def test_few_tiles_where_the_detail_is_low(live: Live) -> None:
    counts = [chat(live, [part(url_of(picture(70, 40)), detail=each)]).json["usage"] for each in ("high", "low")]
    rows = [each["prompt_tokens_details"]["image_tokens"] for each in counts]
    assert rows[0] > rows[1] > 0 and counts[0]["prompt_tokens"] > counts[1]["prompt_tokens"]


def test_a_plan_counts_what_the_prompt_will_have(folder: Path) -> None:
    asked = ["plan", str(folder), "--hardware", "h100-sxm", "--context", "1024", "--json", "--weights", "int8"]
    found = CliRunner().invoke(main, [*asked, "--image", "70x40"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    plan = json.loads(found.stdout)
    (image,) = plan["images"]
    with opened(folder, weights="int8", images="on") as llm, opened(folder, weights="int8", images="off") as blind:
        ids, spans = rendered(llm, "a", picture(70, 40), "a")
        rest, _ = rendered(llm, "aa")
        assert image["tokens"] == len(ids) - len(rest) and image["parts"] == len(spans) > 2
        assert image["rows"] == sum(span.tile.rows for span in spans) and image["encode_s"] > 0
        names = ("weight_bytes", "buffer_bytes")
        taken = sum(llm.resolved[name] - blind.resolved[name] for name in names)
    assert plan["memory"]["encoder_bytes"] == pytest.approx(taken, rel=0.01)


def test_config_says_that_the_model_reads_images(folder: Path) -> None:
    found = CliRunner().invoke(main, ["config", str(folder)], catch_exceptions=False)
    line = next(line for line in found.output.splitlines() if line.strip().startswith("images"))
    assert " on " in line and "the model has an encoder of images" in found.output


def test_the_command_line_takes_files(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png(picture(70, 40)))
    words = ["generate", "What?", "--model", str(folder), "--json", "--max-tokens", "2", "--kv-memory", "20MB"]
    found = CliRunner().invoke(main, [*words, "--image", str(file)], catch_exceptions=False)
    assert found.exit_code == 0
    with opened(folder) as llm:
        ids, _ = rendered(llm, picture(70, 40), "What?")
    assert json.loads(found.stdout)["num_prompt_tokens"] == len(ids)
