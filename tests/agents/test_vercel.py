"""The Vercel AI SDK in Node drives loops of five tool turns. Without Node or its packages, pytest reports why these
tests were skipped."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.agents.npm import installed
from tests.agents.script import Seen, check, looping, result_of, turns_of
from tests.real.packages import MARK, NotHere
from tests.serve.fakes import MODEL
from tests.text.talk.reading import TOOLS
from tests.tiers import rest_daily
from twostroke.text.talk.catalog import FORMATS

HERE = Path(__file__).parent / "vercel"
LIMIT_S = 120


@pytest.fixture(scope="session")
def node_folder() -> Path:
    try:
        return installed(HERE)
    except NotHere as error:
        pytest.skip(f"{MARK}{error}")


STREAMS = [(name, "stream") for name in FORMATS]
WHOLE = [(name, "whole") for name in ("hermes", "harmony", "glm47", "kimi")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "way"), rest_daily([*STREAMS, *WHOLE], [*STREAMS[::4], *WHOLE]))
def test_the_ai_sdk_drives_five_tool_turns(name: str, way: str, node_folder: Path) -> None:
    form = FORMATS[name]
    results = [result_of(turn, place) for turn, calls in enumerate(turns_of(form)) for place in range(len(calls))]
    with looping(form) as (live, engine):
        words = [live.url, MODEL, json.dumps(TOOLS), json.dumps(results), way]
        done = subprocess.run(
            ["node", "loop.mjs", *words], cwd=node_folder, capture_output=True, text=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
        seen = json.loads(done.stdout)
        calls = [[(call, given) for call, given in turn] for turn in seen["calls"]]
        check(form, Seen(calls, seen["thoughts"], seen["answer"]), engine)
        assert len(engine.prompts) == 6
