"""Files that commands write are whole or absent, whatever fails. A place that cannot be written is an error before any
work."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from twostroke.cli.main import main
from twostroke.cli.shared.output_file import check_place, write_bytes
from twostroke.engine.record_file import RecordFile
from twostroke.lab.bench import run_compare
from twostroke.types.errors import ConfigError

OLD, NEW = b"the old one", b"the new one, which is longer"


class Kth:
    """Makes call number k of the wrapped calls fail. A write that fails has written a part of its bytes."""

    def __init__(self, fails_at: int, error: BaseException) -> None:
        self.calls, self.fails_at, self.error = 0, fails_at, error

    def call(self, real: Callable[..., Any], *words: Any, **named: Any) -> Any:
        self.calls += 1
        if self.calls == self.fails_at:
            raise self.error
        return real(*words, **named)

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *words, **named: self.call(real, *words, **named)

    def file(self, path: Path, mode: str) -> Any:
        kth = self

        class File(io.FileIO):
            def write(self, content: Any) -> int:
                half = super().write(content[: len(content) // 2])
                return half + int(kth.call(super().write, content[half:]))

        return kth.call(File, path, mode)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"])
def test_whatever_fails_the_old_file_or_the_new_one_is_there_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    target = tmp_path / "report.json"
    for k in range(1, 20):
        target.write_bytes(OLD)
        kth, ended = Kth(k, error), True
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", lambda path, mode, kth=kth: kth.file(path, mode))
            patch.setattr(os, "fsync", kth.wrap(os.fsync))
            patch.setattr(os, "replace", kth.wrap(os.replace))
            try:
                write_bytes(target, NEW, "--save")
            except (ConfigError, KeyboardInterrupt) as told:
                assert isinstance(told, ConfigError) == isinstance(error, OSError)
                ended = False
        assert [path.name for path in tmp_path.iterdir()] == ["report.json"]
        assert ended == (kth.calls < k)
        if ended:
            break
        assert target.read_bytes() == OLD
    assert k == 5 and target.read_bytes() == NEW  # the five calls are open, write, write, fsync, replace


def test_a_place_that_takes_no_file_is_an_error_before_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = tmp_path / "kept.json"
    kept.write_bytes(OLD)
    check_place(kept, "--save")
    check_place(tmp_path / "new.json", "--save")
    assert [path.name for path in tmp_path.iterdir()] == ["kept.json"] and kept.read_bytes() == OLD
    for wrong, why in (
        (tmp_path, "It is a folder"),
        (tmp_path / "none" / "x", "There is no folder"),
        (kept / "x", "There is no folder"),
        (tmp_path / ("x" * 300), "name too long"),
        (Path("/dev/null"), "no ordinary file"),
        (Path("/proc/x.json"), "No such file"),  # a folder in which not even root can write
    ):
        with pytest.raises(ConfigError) as told:
            check_place(wrong, "--save")
        assert "--save" in str(told.value) and why in (told.value.why or ""), told.value.why


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real, link = tmp_path / "there" / "real.json", tmp_path / "link.json"
    real.parent.mkdir()
    link.symlink_to(real)
    check_place(link, "--save")
    write_bytes(link, NEW, "--save")
    assert link.is_symlink() and real.read_bytes() == NEW and len(list(real.parent.iterdir())) == 1


def test_a_device_is_no_place_for_step_records() -> None:
    with pytest.raises(ConfigError, match="cannot be written"):
        RecordFile(Path("/dev/null"), "nowhere", lambda sentence: None)
    assert not Path("/dev/null").is_file()


@pytest.mark.parametrize(
    "words",
    [
        ("bench", "compare", "--save"),
        ("bench", "compare", "--plot"),
        ("bench", "serve", "--save"),
        ("bench", "sweep", "--save"),
        ("bench", "sweep", "--plot"),
        ("plan", "spark", "--plot"),
        ("simulate", "--save"),
        ("simulate", "--perfetto"),
        ("simulate", "--records"),
        ("trace", "none", "--perfetto"),
    ],
    ids=" ".join,
)
def test_every_verb_that_writes_looks_first(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_compare, "run", lambda *_: pytest.fail("work began"))
    found = CliRunner().invoke(main, [*words, "/no/such/folder/x.svg"])
    assert found.exit_code == 2 and words[-1] in found.stderr and "There is no folder" in found.stderr, found.output


def test_a_comparison_is_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Result:
        contradictions: tuple[str, ...] = ()

        def as_json(self) -> dict[str, int]:
            return {"cases": 2}

        def figure(self) -> str:
            return "<svg/>"

        def text(self) -> str:
            return "two cases"

    monkeypatch.setattr(run_compare, "run", lambda *_: iter([Result()]))
    saved, plot = tmp_path / "result.json", tmp_path / "result.svg"
    words = ["bench", "compare", "--save", str(saved), "--plot", str(plot)]
    assert CliRunner().invoke(main, words).exit_code == 0
    assert saved.read_text() == '{\n "cases": 2\n}\n' and plot.read_text() == "<svg/>"
    monkeypatch.setattr(os, "fsync", lambda _file: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    found = CliRunner().invoke(main, words)
    assert found.exit_code == 2 and "No space left" in found.stderr and "Traceback" not in found.output
    assert plot.read_text() == "<svg/>" and len(list(tmp_path.iterdir())) == 2


def test_a_comparison_that_ends_early_leaves_what_it_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Result:
        def as_json(self) -> dict[str, int]:
            return {"rounds": 1}

    def turns(*_: object) -> Iterator[Result]:
        yield Result()
        raise KeyboardInterrupt

    monkeypatch.setattr(run_compare, "run", turns)
    saved = tmp_path / "result.json"
    assert CliRunner().invoke(main, ["bench", "compare", "--save", str(saved)]).exit_code != 0
    assert saved.read_text() == '{\n "rounds": 1\n}\n'


def test_records_of_several_engines_are_refused_before_they_run() -> None:
    found = CliRunner().invoke(main, ["simulate", "--replicas", "2", "--records", "steps.jsonl", "--model", "/none"])
    assert found.exit_code == 2 and "one engine" in found.stderr
