"""Pages of prompts are counted. They are removed when nobody reads them or when all are asked for, and the oldest when
room is needed."""

from __future__ import annotations

import json
import os
from pathlib import Path

from click.testing import CliRunner

from twostroke.cli.cache import command
from twostroke.weights.store.kept_pages import kept_pages, page_waste, waste_over
from twostroke.weights.store.unused import DAY_S, remove_waste

NOW_S = 1_700_000_000.0
AGES_DAYS = {"a.kv": 40, "b.kv": 20, "c.kv": 1}


def folder_of_pages(cache: Path) -> Path:
    """Three files of 1,000 bytes each, used at different times, and the secret."""
    folder = cache / "kv" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (cache / "kv" / "secret").write_bytes(bytes(32))
    for name, days in AGES_DAYS.items():
        (folder / name).write_bytes(bytes(1000))
        os.utime(folder / name, (NOW_S - days * DAY_S,) * 2)
    return folder


def test_what_nobody_reads_goes(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    assert kept_pages(tmp_path).num_bytes == 3000
    (waste,) = page_waste(tmp_path, NOW_S, 30 * DAY_S, everything=False)
    assert waste.num_bytes == 1000 and waste.files == (folder / "a.kv",)
    assert remove_waste(waste) == 1000
    assert remove_waste(waste) == 0, "twice frees nothing"
    assert page_waste(tmp_path, NOW_S, 30 * DAY_S, everything=False) == []
    assert sorted(path.name for path in folder.iterdir()) == ["b.kv", "c.kv"]


def test_the_oldest_go_until_the_rest_fits(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    for keep, gone in ((3000, []), (2999, ["a.kv"]), (1500, ["a.kv", "b.kv"]), (0, ["a.kv", "b.kv", "c.kv"])):
        found = waste_over(tmp_path, keep, [])
        assert sorted(path.name for waste in found for path in waste.files) == gone
    before = page_waste(tmp_path, NOW_S, 30 * DAY_S, everything=False)
    assert waste_over(tmp_path, 2000, before) == [], "what goes already makes room"
    (waste,) = waste_over(tmp_path, 1000, before)
    assert waste.files == (folder / "b.kv",)


def test_nothing_is_there_where_no_prompt_was_kept(tmp_path: Path) -> None:
    assert kept_pages(tmp_path).files == () and kept_pages(tmp_path).used_s is None
    assert page_waste(tmp_path, NOW_S, 0.0, everything=True) == [] and waste_over(tmp_path, 0, []) == []


def test_the_verbs_show_and_empty_it(tmp_path: Path) -> None:
    folder = folder_of_pages(tmp_path)
    run = CliRunner()
    place = ("--cache", str(tmp_path))
    shown = run.invoke(command, ["list", *place])
    assert shown.exit_code == 0 and "3 files of prompts, 0.0 MB" in shown.output
    told = json.loads(run.invoke(command, ["list", "--json", *place]).output)["pages"]
    assert (told["files"], told["bytes"]) == (3, 3000)
    listed = run.invoke(command, ["gc", "--older", "99999d", "--keep", "1kB", *place])
    assert "2 files of prompts, used longest ago" in listed.output and len(list(folder.iterdir())) == 3
    words = ["gc", "--older", "99999d", "--keep", "1kB", "--yes", "--json"]
    done = json.loads(run.invoke(command, [*words, *place]).output)
    assert done["freed_bytes"] == 2000 and [path.name for path in folder.iterdir()] == ["c.kv"]
    again = json.loads(run.invoke(command, ["gc", "--pages", "--yes", "--json", *place]).output)
    assert again["freed_bytes"] == 1000 and list(folder.iterdir()) == []
    assert (tmp_path / "kv" / "secret").exists(), "a server that runs knows it"
