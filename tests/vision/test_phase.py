"""The phase encode: seconds of images in the ledger, in explanations and in metrics, for the asker and for streams."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serve.harness import Live, serving
from tests.vision.folders import picture, smolvlm
from tests.vision.pieces.test_turns import one_piece_a_step, prompt_of, watched
from tests.vision.served.test_input import OPTIONS, chat, part, text, url_of
from tests.vision.test_exactness import opened
from twostroke.cost.explain.explanation import CauseKind
from twostroke.server.build import build_server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("phase")
    smolvlm(made)
    return made


def test_every_second_of_an_encode_is_the_askers_and_named_to_the_streams_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one_piece_a_step(monkeypatch)
    steps = watched(monkeypatch)
    with opened(folder) as llm:
        prompts = [prompt_of(llm, "words", tokens=200), prompt_of(llm, picture(64, 64), "x", tokens=5)]
        words, seeing = llm.engine.generate(prompts)
        encoded_s = sum(result.encode_s for _, result in steps)
        explained = llm.explain(seeing.request_id)[0]
        beside = llm.explain(words.request_id)[0]
    assert encoded_s > 0
    assert explained.parts_s["encode_s"] == pytest.approx(encoded_s)
    cause = next(each for each in explained.causes if each.kind is CauseKind.ENCODE)
    pieces = sum(result.encodes.pieces for _, result in steps)
    in_steps = sum(result.encodes.pieces > 0 for _, result in steps)
    assert in_steps > 1 and f"{pieces} pieces, which {in_steps} steps" in cause.text
    assert sum(explained.parts_s.values()) == pytest.approx(explained.e2e_s)
    assert beside.parts_s["encode_s"] == 0 and sum(beside.parts_s.values()) == pytest.approx(beside.e2e_s)
    assert beside.parts_s["others_prefill_s"] >= encoded_s * 0.999
    stretched = next(cause for cause in beside.causes if cause.kind is CauseKind.STRETCHED)
    assert seeing.request_id in " ".join(stretched.who)


def test_a_prompt_alone_has_its_encode_apart_from_its_prefill(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = watched(monkeypatch)
    with opened(folder) as llm:
        first = llm.engine.generate([prompt_of(llm, picture(64, 64), "x", tokens=3)])[0]
        encoded_s = sum(result.encode_s for _, result in steps)
        again = llm.engine.generate([prompt_of(llm, picture(64, 64), "y", tokens=3)])[0]
        parts = [llm.explain(each.request_id)[0].parts_s for each in (first, again)]
        cause = next(each for each in llm.explain(first.request_id)[0].causes if each.kind is CauseKind.ENCODE)
    assert parts[0]["encode_s"] == pytest.approx(encoded_s) and parts[0]["own_prefill_s"] > 0
    assert parts[1]["encode_s"] == 0
    rows = sum(span.end - span.first for span in steps[0][0].sequences[0].request.images)
    assert f"{rows:,} tokens" in cause.text


@pytest.fixture(scope="module")
def live(folder: Path) -> Iterator[Live]:
    with build_server(str(folder), OPTIONS) as built, serving(built.parts) as made:
        yield made


def test_the_server_names_the_phase(live: Live) -> None:
    answer = chat(live, [part(url_of(picture(40, 40))), text("x")], timings_per_token=True).json
    explained = live.get(f"/v1/requests/{answer['id']}/explain").json
    completion = explained["completions"][0] if "completions" in explained else explained
    assert "encode_s" in str(completion)
    lines = live.get("/metrics").body.decode().splitlines()
    assert any('part="encode"' in line and not line.startswith("#") for line in lines)
    assert any(line.startswith("twostroke_image_encode_seconds_total") for line in lines)
