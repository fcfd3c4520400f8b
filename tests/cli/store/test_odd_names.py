"""Names that are no names, in every verb that takes a model: one clear error with a documented code, or success."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from huggingface_hub import constants

from twostroke.cli.main import main
from twostroke.cli.shared import command
from twostroke.types.reading.user_path import is_there, user_path

ODD = (
    *("a b", "模型", "a\nb", "it's", '"q"', "x" * 5000, "a/../b", "..", ".", "-", "--", "%s%d", "\x1b[31mred", "a/b/c"),
    *(
        "a:b:c",
        ":",
        "@",
        "a@b",
        "~",
        "~nobody-here/x",
        "$HOME",
        "a\x7fb",
        "a/b:",
        "a/b@",
        "hf.co/",
        "/",
        "//",
        "/dev/null",
    ),
    *("/dev/null", "/dev/zero/x", "\u202edcba", "a/" + "b" * 300, "spark/", "spark:"),
)
VERBS: dict[str, tuple[str, ...]] = {
    "show": ("show",),
    "pull": ("pull", "--dry-run"),
    "rm": ("rm", "--yes"),
    "alias": ("alias", "n"),
    "alias of": ("alias",),
    "stop": ("stop",),
    "plan": ("plan", "--hardware", "h100-sxm"),
    "config": ("config",),
    "list": ("list",),
    "run": ("run",),
    "quantize": ("quantize", "--to", "int4", "--output", "/dev/null/x"),
    "cache verify": ("cache", "verify"),
}
CODES = (0, 2, 3, 4)


@pytest.mark.parametrize("verb", VERBS)
def test_an_odd_name_is_one_clear_error(verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # "." and ".." are folders without a model
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    places = {"XDG_CACHE_HOME": str(tmp_path / "cache"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    for odd in ODD:
        after = ("Hi", "--max-tokens", "1") if verb == "run" else ("spark",) if verb == "alias of" else ()
        words = [*VERBS[verb], "--", odd, *after] if verb != "run" else ["run", *after[1:], "--", odd, after[0]]
        done = CliRunner().invoke(main, words, env={**places, "HF_HUB_OFFLINE": "1"})
        told = (odd[:40], done.exit_code, done.output[-600:])
        assert done.exit_code in CODES and "Unexpected" not in done.output and "Traceback" not in done.output, told
        if done.exit_code:
            assert done.stderr.lower().count("error: ") == 1, told
            assert "\x1b" not in done.stderr and len(done.stderr) < 3 * command.MOST_SHOWN, told


def test_what_an_error_shows_changes_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    command.print_error(command.TwostrokeError("a\x1b[31m\u202eb", why="x" * 5000, fix="Schön, 模型\nb"))
    what, why, fix, more = capsys.readouterr().err.splitlines()
    assert what == "error: a\\x1b[31m\\u202eb" and len(why) < command.MOST_SHOWN + 20
    assert (fix, more) == ("  fix: Schön, 模型", "b")


def test_a_path_of_a_user_is_read_as_far_as_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_path("~/x") == tmp_path / "x" and user_path("~nobody-here/x") == Path("~nobody-here/x")
    (tmp_path / "x").write_text(json.dumps(1))
    assert is_there("~/x") and not is_there("~nobody-here/x") and not is_there("x" * 5000)
