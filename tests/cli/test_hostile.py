"""Each verb as a process in a hostile place: no home, nothing can be written, no working folder, odd terminals.

A verb works, or ends with one clear error and a documented code. Its JSON is whole or absent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import PATIENCE_S
from tests.tiers import thinned

CODES = (0, 2, 3, 4, 6, 7)
NOWHERE = "http://127.0.0.1:9"
VERBS: Mapping[str, Sequence[str]] = {
    "pull": ("pull", "spark"),
    "pull of the hub": ("pull", "acme/none", "--dry-run"),
    "list": ("list",),
    "show": ("show", "spark"),
    "rm": ("rm", "acme/none", "--yes"),
    "alias": ("alias",),
    "alias of": ("alias", "mine", "spark"),
    "run": ("run", "spark", "Hi", "--max-tokens", "2"),
    "generate": ("generate", "Hi", "--max-tokens", "2"),
    "chat": ("chat", "spark", "--max-tokens", "2"),
    "ps": ("ps",),
    "stop": ("stop", "none"),
    "cache": ("cache", "list"),
    "cache gc": ("cache", "gc"),
    "cache verify": ("cache", "verify"),
    "serve": ("serve", "spark", "--port", "99999"),
    "explain": ("explain", "none", "--url", NOWHERE),
    "top": ("top", "--url", NOWHERE),
    "config": ("config", "spark"),
    "plan": ("plan", "spark", "--hardware", "h100-sxm"),
    "doctor": ("doctor", "spark"),
    "kernels": ("kernels",),
    "quantize": ("quantize", "spark", "--to", "gguf:Q8_0", "--output", "made", "--tokens", "2048", "--no-report"),
    "trace": ("trace", "none.jsonl"),
    "bench": ("bench", "phases", "spark", "--prompts", "8", "--batches", "1", "--new", "2", "--rounds", "1"),
    "simulate": ("simulate", "--model", "spark", "--hardware", "h100-sxm", "--requests", "3"),
}


class Place(NamedTuple):
    """The surroundings of a process. environment: variables that are set, or taken away where they are None. gone: the
    working folder is removed before the verb begins."""

    environment: Mapping[str, str | None] = {}
    gone: bool = False


PLACES: Mapping[str, Place] = {
    "home is a device": Place({"HOME": "/dev/null"}),
    "home is empty": Place({"HOME": ""}),
    "home is on a file system of the kernel": Place({"HOME": "/sys/kernel"}),
    "home is not there": Place({"HOME": "/none/at all"}),
    "an odd home": Place({"HOME": "{folder}/a b\n模型 'x'"}),
    "the cache cannot be written": Place({"XDG_CACHE_HOME": "/proc/none", "TWOSTROKE_CACHE": None}),
    "the cache is named by a relative path": Place({"XDG_CACHE_HOME": "rel", "XDG_CONFIG_HOME": "rel"}),
    "the choices cannot be written": Place({"XDG_CONFIG_HOME": "/proc/none"}),
    "no temporary folder": Place({"TMPDIR": "/none", "TEMP": "/none", "TMP": "/none"}),
    "no working folder": Place(gone=True),
    "a terminal of twenty columns": Place({"COLUMNS": "20", "LINES": "2"}),
    "a terminal of no columns": Place({"COLUMNS": "0", "LINES": "0", "TERM": "dumb"}),
    "columns that are no number": Place({"COLUMNS": "wide", "TERM": "none-such"}),
    "only ASCII": Place({"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}),
}
CASES = [(verb, place) for verb in VERBS for place in PLACES]


class Done(NamedTuple):
    code: int
    output: str
    errors: str


def environment(folder: Path, place: Place) -> dict[str, str]:
    """The variables of a process with a home of its own, below `folder`."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "HF_", "LC_", "LANG"))}
    base |= {"HOME": str(folder / "home"), "HF_HUB_OFFLINE": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    base.pop("TWOSTROKE_CACHE", None)
    for name, value in place.environment.items():
        base.pop(name, None)
        if value is not None:
            base[name] = value.format(folder=folder)
    return base


def run_there(folder: Path, place: Place, *words: str, text: str = "Hi\n") -> Done:
    """Runs a verb in that place. text: its standard input."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    words = tuple(str(folder / word) if word in ("made", "none.jsonl") else word for word in words)
    done = subprocess.run(
        [sys.executable, "-m", "twostroke", *words],
        input=text.encode(),
        capture_output=True,
        cwd=work,
        env=environment(folder, place),
        timeout=2 * PATIENCE_S,
        preexec_fn=work.rmdir if place.gone else None,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def check(done: Done, told: object) -> None:
    """One clear error with a documented code, or success."""
    assert done.code in CODES, (told, done)
    for wrong in ("Traceback", "Unexpected", "Exception ignored", "Warning:"):
        assert wrong not in done.errors, (told, done)
    if done.code:
        assert done.errors.lower().count("error: ") == 1, (told, done)


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "place"), thinned(CASES, "hostile", 20))
def test_a_verb_works_or_says_clearly_why_not(verb: str, place: str, tmp_path: Path) -> None:
    check(run_there(tmp_path, PLACES[place], *VERBS[verb]), (verb, place))


@pytest.mark.slow
@pytest.mark.parametrize(("verb", "place"), thinned(CASES, "hostile json", 12))
def test_json_is_whole_or_absent(verb: str, place: str, tmp_path: Path) -> None:
    done = run_there(tmp_path, PLACES[place], *VERBS[verb], "--json")
    check(done, (verb, place))
    if done.output.strip() and verb != "chat":
        json.loads(done.output)
    assert not done.code or not done.output.strip(), (verb, place, done)


SEVERAL: Mapping[str, Callable[[int], Sequence[str]]] = {
    "alias": lambda number: ("alias", f"n{number}", "spark"),
    "the same alias": lambda number: ("alias", "n", f"owner/m{number}"),
    "gc": lambda number: ("cache", "gc", "--yes"),
    "quantize": lambda number: VERBS["quantize"],
    "run": lambda number: VERBS["run"],
    "pull": lambda number: VERBS["pull"],
    "stop": lambda number: ("stop", "--all"),
    "list": lambda number: ("list",),
    "config": lambda number: VERBS["config"],
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", SEVERAL)
def test_several_of_one_verb_at_the_same_time(kind: str, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        all_done = list(threads.map(lambda number: run_there(tmp_path, Place(), *SEVERAL[kind](number)), range(4)))
    for done in all_done:
        check(done, kind)
    if kind == "alias":
        found = json.loads(run_there(tmp_path, Place(), "alias", "--json").output)["aliases"]
        assert found == {f"n{number}": "spark" for number in range(4)}
    if kind == "quantize":
        assert any(done.code == 0 for done in all_done)
        made = tmp_path / "made"
        assert run_there(tmp_path, Place(), "run", str(made), "Hi", "--max-tokens", "1").code == 0
