"""Images in plans and predictions: tokens by size, memory, seconds of the encode, and the first token after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.scheduler.fakes import LineCost
from tests.vision.folders import expected_text, smolvlm, token_ids
from tests.vision.predicted.costs import PartsCost, RowCost, encode_cost_of
from tests.vision.test_exactness import opened
from twostroke.assembly.settings.option_values import ENCODER_WEIGHTS
from twostroke.cli.main import main
from twostroke.cost.encode_cost import EncodeCost, PartCosts
from twostroke.engine.cache.manager import CacheManager
from twostroke.engine.scheduler.estimates.piece_times import UNMEASURED
from twostroke.engine.scheduler.limits.image_turns import UNBOUND_S, ImageTurns
from twostroke.engine.scheduler.limits.limits import SchedulerLimits, StepLoad
from twostroke.engine.scheduler.objectives.objective_policy import objective_policy
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.engine.scheduler.sequence import Sequence
from twostroke.lab.planner.images import parse_size
from twostroke.types.encode import PieceKind, PieceTime
from twostroke.types.errors import Overloaded
from twostroke.types.images import EncodedTiles, ImageSpan, ImageTile
from twostroke.types.objectives import LatencyObjectives
from twostroke.types.plan import Role
from twostroke.types.request import Request
from twostroke.types.sampling.sampling_params import SamplingParams

COST = encode_cost_of(RowCost(), 4)


def tile(key: int, lines: int = 4, columns: int = 4) -> ImageTile:
    return ImageTile(key, lines, columns, 8, 8, b"")


def request(name: str, tokens: int, *tiles: ImageTile) -> Request:
    spans = tuple(ImageSpan(20 * place, each) for place, each in enumerate(tiles))
    return Request(name, name, tuple(range(tokens)), SamplingParams(), 1, 4, frozenset(), 0.0, images=spans)


def sequence(asked: Request) -> Sequence:
    return Sequence(asked, 1, list(asked.prompt_token_ids))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("plan")
    smolvlm(made)
    return made


def planned(folder: Path, *words: str) -> dict[str, object]:
    asked = ["plan", str(folder), "--hardware", "h100-sxm", "--context", "1024", "--json", *words]
    found = CliRunner().invoke(main, asked, catch_exceptions=False)
    assert found.exit_code == 0, found.output
    made: dict[str, object] = json.loads(found.stdout)
    return made


def test_a_plan_counts_what_the_prompt_will_have(folder: Path) -> None:
    images = planned(folder, "--image", "50x20", "--image", "9x9")["images"]
    assert isinstance(images, list)
    counts = [(each["width"], each["height"], each["tokens"]) for each in images]
    wanted = [len(token_ids(expected_text(*cut))) for cut in ((2, 3), (3, 3))]
    assert counts == [(50, 20, wanted[0]), (9, 9, wanted[1])]
    assert images[0]["parts"] == 7 and images[1]["encode_s"] > images[0]["encode_s"] > 0
    assert images[0]["sent_bytes"] % images[0]["rows"] == 0 < images[0]["sent_bytes"] < images[1]["sent_bytes"]


@pytest.mark.parametrize("weights", ENCODER_WEIGHTS)
def test_a_plan_holds_the_memory_that_the_engine_takes(folder: Path, weights: str) -> None:
    plan = planned(folder, "--encoder-weights", weights, "--weights", "int8")
    room, ask = plan["memory"], plan["ask"]
    assert isinstance(room, dict) and isinstance(ask, dict)
    assert ask["encoder_weights"] == ("int8" if weights == "usual" else weights)
    given = {"encoder_weights": weights, "weights": "int8"}
    with opened(folder, images="on", **given) as seeing, opened(folder, images="off", **given) as blind:
        names = ("weight_bytes", "buffer_bytes")
        taken = sum(seeing.resolved[name] - blind.resolved[name] for name in names)
    assert room["encoder_bytes"] == pytest.approx(taken, rel=0.01)
    assert room["needed_bytes"] > room["encoder_bytes"] > 256 << 20


LINK = ("--exchange-time", "40us", "--exchange-rate", "10Gbit/s")


@pytest.mark.parametrize(("way", "place"), [("tensor", 0), ("pipeline", 1)])
def test_one_part_of_a_divided_model_has_the_encoder(folder: Path, way: str, place: int) -> None:
    flags = (f"--{way}-parallel", "2", *LINK)
    seeing = planned(folder, "--image", "50x20", *flags)
    whole, parts, images = planned(folder)["memory"], seeing["parts"], seeing["images"]
    assert isinstance(parts, list) and isinstance(images, list) and isinstance(whole, dict)
    assert [part["encoder_bytes"] > 0 for part in parts] == [index == place for index in range(2)]
    assert parts[place]["encoder_bytes"] == whole["encoder_bytes"]
    assert parts[place]["needed_bytes"] > parts[1 - place]["needed_bytes"] + 260_000_000
    text = CliRunner().invoke(main, ["plan", str(folder), "--hardware", "h100-sxm", *flags, "--image", "50x20"]).output
    assert f"{'rank' if way == 'tensor' else 'stage'} {place} encodes images" in text and "image rows to other" in text
    small = CliRunner().invoke(main, ["plan", str(folder), "--hardware", "h100-sxm", *flags, "--memory", "600MB"])
    assert small.exit_code == 4 and "with the image encoder (0.27 GB)" in small.output


def test_an_encode_takes_longer_with_more_bits(folder: Path) -> None:
    seconds = {}
    for weights in ("int8", "int16", "f32"):
        plan = planned(folder, "--image", "50x20", "--encoder-weights", weights, "--weights", "int8")
        images = plan["images"]
        assert isinstance(images, list)
        seconds[weights] = images[0]["encode_s"]
    assert seconds["int8"] < min(seconds["int16"], seconds["f32"])


def test_the_encoder_of_a_model_without_one_is_refused() -> None:
    found = CliRunner().invoke(main, ["plan", "spark", "--hardware", "h100-sxm", "--encoder-weights", "int8"])
    assert found.exit_code == 2 and "--encoder-weights: spark reads no images" in found.output


@pytest.mark.parametrize(
    ("model", "size", "words"),
    [("spark", "9x9", "reads no images"), ("", "9", "WIDTHxHEIGHT"), ("", "0x9", "WIDTHxHEIGHT"), ("", "99x1", "")],
)
def test_what_cannot_be_planned_is_refused(folder: Path, model: str, size: str, words: str) -> None:
    asked = ["plan", model or str(folder), "--hardware", "h100-sxm", "--image", size]
    asked += ["--context", "30"] if not words else []
    found = CliRunner().invoke(main, asked)
    assert found.exit_code == 2 and (words or "--context") in found.output


def test_sizes() -> None:
    assert str(parse_size("1024x768")) == "1024 x 768" == str(parse_size(" 1024X768 "))


def test_patches_of_an_encode_see_each_other() -> None:
    """There are as many pairs as patches squared, and as many in a window as it has patches."""
    costs = PartCosts(*[PartsCost(0.0, 1.0)] * 3)
    assert EncodeCost(costs, 4).seconds(16) == pytest.approx(64 * 64, rel=0.01)
    windows = EncodeCost(costs, 4, layers=4, window=16, whole=frozenset({3}))
    assert windows.seconds(10) == pytest.approx((3 * 40 * 16 + 40 * 40) / 4, rel=0.03)


def test_predictions_follow_what_encodes_took() -> None:
    turns = ImageTurns(COST)
    first = sequence(request("a", 60, tile(-2), tile(-3)))
    turns.arrived(first)
    alone_s = COST.seconds(16)
    assert first.encode_s == pytest.approx(2 * alone_s)
    times = tuple(PieceTime(kind, 1.0, 3.0) for kind in PieceKind)  # three times as long as predicted
    for keys in (frozenset[int](), frozenset({-2})):
        turns.done(EncodedTiles(keys, 9.0, times), [first])
    assert first.encode_s == pytest.approx(3 * alone_s)  # one tile is left
    again = sequence(request("b", 60, tile(-2)))
    turns.arrived(again)
    assert again.encode_s == 0


def test_rows_that_were_dropped_are_encoded_again_in_front_of_their_prompt() -> None:
    turns, seeing, stream = ImageTurns(COST), sequence(request("a", 60, tile(-2))), sequence(request("s", 4))
    stream.role = Role.DECODE
    for dropped, wanted in ((frozenset[int](), 60), (frozenset({-2}), 0), (frozenset[int](), 60)):
        turns.done(EncodedTiles(frozenset() if dropped else frozenset({-2}), dropped=dropped), [])
        step = StepLoad(parts=[(stream, 1)])
        assert turns.limit(seeing, 60, step) == wanted
        assert (turns.take(step, ()).tile is None) is (wanted == 60)
    assert turns.take(StepLoad(), ()).tile is None


def test_a_kind_of_piece_begins_with_little_until_one_was_measured() -> None:
    """Then its seconds are corrected by the times of the last pieces, and those of other kinds are not."""
    turns, seeing, stream = ImageTurns(COST), sequence(request("a", 60, tile(-2))), sequence(request("s", 4))
    stream.role = Role.DECODE
    found = []
    for measured_s in (0.0, 2.0, 2.0):
        turns.done(EncodedTiles(times=(PieceTime(PieceKind.HEAD, 1.0, measured_s),)), [])
        step = StepLoad(parts=[(stream, 1)])
        turns.limit(seeing, 60, step)
        turn = turns.take(step, ())
        assert turn.seconds == UNBOUND_S
        found.append([turn.pace.of(kind) for kind in (PieceKind.HEAD, PieceKind.PRODUCTS)])
    assert found == [[UNMEASURED, UNMEASURED], [2.0, UNMEASURED], [2.0, UNMEASURED]]


def test_a_request_is_held_or_refused_by_the_time_of_its_image() -> None:
    """There are two requests of one length, and only one of them has an image that takes longer than the promise."""
    limits = SchedulerLimits(64, 4)
    big = encode_cost_of(RowCost(), 4000)
    for cost, late in ((None, False), (big, True)):
        policy = objective_policy(LineCost(), LatencyObjectives(ttft_s=0.5), limits, 16)
        scheduler = Scheduler(CacheManager(100, 16), limits, policy)
        scheduler.images.cost = cost
        scheduler.add(request("words", 40))
        try:
            scheduler.add(request("seeing", 40, tile(-2)))
            held = scheduler.holds("seeing")
        except Overloaded:
            held = True
        assert held is late or (late and _too_long(scheduler))


def _too_long(scheduler: Scheduler) -> bool:
    """A prompt that alone takes longer than its objective waits after all promised ones."""
    found = scheduler._queues.find("seeing")
    return found is not None and found.rank[1] > 0
