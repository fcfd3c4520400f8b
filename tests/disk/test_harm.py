"""Parts that are damaged, gone, of another salt or of another arithmetic are computed again with the same bits, and one
message reports it."""

from __future__ import annotations

import errno
import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.disk.test_same_bits import LATER, PARAMS, PROMPT, bits
from twostroke.backends.cpu import available_levels
from twostroke.cost.disk_price import DiskPrice
from twostroke.engine.disk import fetching, saving
from twostroke.engine.disk.files import SECRET, DiskFiles
from twostroke.engine.disk.index import DiskPart
from twostroke.engine.disk.store import DiskStore
from twostroke.llm import LLM
from twostroke.types.output import GenerationOutput, Prompt


@pytest.fixture(autouse=True)
def _always_worth(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Makes reading pay on any machine."""
    monkeypatch.setattr(DiskPrice, "worth_reading", lambda *_: True)
    yield


def ask(cache: Path, *prompts: Prompt, disk: str = "100MB", **options: object) -> tuple[list[GenerationOutput], LLM]:
    """The answers of a process that begins and ends."""
    with LLM("spark", threads=1, cache=str(cache), kv_disk=disk, max_sequences=4, **options) as llm:
        return llm.engine.generate(list(prompts)), llm


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> object:
    (answer,), _ = ask(tmp_path_factory.mktemp("cold"), Prompt(LATER, PARAMS), disk="off")
    return bits(answer)


@pytest.mark.parametrize("harm", ["nothing", "flip", "cut", "gone", "no permission", "zeros", "swapped"])
def test_an_answer_has_its_bits_whatever_the_files_are(harm: str, wanted: object, tmp_path: Path) -> None:
    ask(tmp_path, Prompt(PROMPT, PARAMS))
    ask(tmp_path, Prompt(PROMPT[::-1], PARAMS))
    paths = sorted((tmp_path / "kv").rglob("*.kv"))
    wholes = [path.read_bytes() for path in paths]
    assert len(paths) >= 2
    for path, whole, other in zip(paths, wholes, wholes[1:] + wholes[:1], strict=True):
        if harm == "gone":
            path.unlink()
        elif harm == "no permission":
            path.chmod(0)
        elif harm != "nothing":
            middle = len(whole) // 2
            flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
            path.write_bytes({"flip": flipped, "cut": whole[:-1], "zeros": bytes(len(whole)), "swapped": other}[harm])
    (answer,), llm = ask(tmp_path, Prompt(LATER, PARAMS))
    assert bits(answer) == wanted
    disk = llm._built.disk
    assert disk is not None
    if harm in ("nothing", "swapped"):  # parts are not found by the name of their file
        assert answer.num_cached_tokens > 0.7 * len(PROMPT) and disk.counts.read_tokens > 0.7 * len(PROMPT)
    if harm in ("flip", "cut", "zeros"):
        assert disk.counts.damaged > 0


@pytest.mark.parametrize("change", ["salt", "kv_format", "weights", "context", "level"])
def test_another_salt_or_arithmetic_finds_nothing(change: str, tmp_path: Path) -> None:
    ask(tmp_path, Prompt(PROMPT, PARAMS))
    prompt = replace(Prompt(LATER, PARAMS), cache_salt="another") if change == "salt" else Prompt(LATER, PARAMS)
    options: dict[str, dict[str, object]] = {
        "kv_format": {"kv_format": "f32"},  # at the generic level, K and V are kept in bf16
        "weights": {"weights": "int4"},
        "context": {"context": 1024},
        "level": {"cpu_level": available_levels()[0]},
    }
    if change == "level" and len(available_levels()) == 1:
        pytest.skip("this machine has one level")
    (answer,), _ = ask(tmp_path, prompt, **options.get(change, {}))
    assert answer.num_cached_tokens == 0


def test_several_prompts_and_completions_wait_for_one_reading(tmp_path: Path) -> None:
    """Requests that are read, computed and sampled together have the bits of each alone."""
    many = replace(PARAMS, n=3)
    prompts = [Prompt(LATER, many), Prompt(PROMPT[:40], PARAMS), Prompt(LATER[:250], PARAMS), Prompt(LATER, PARAMS)]
    ask(tmp_path, Prompt(PROMPT, PARAMS))
    read, llm = ask(tmp_path, *prompts)
    computed, _ = ask(tmp_path, *prompts, disk="off")
    for one, other in zip(read, computed, strict=True):
        assert [(each.token_ids, each.logprobs) for each in one.completions] == [
            (each.token_ids, each.logprobs) for each in other.completions
        ]
    llm._built.cache.check()
    assert llm._built.cache.pages_used == 0


def test_a_full_disk_is_no_error(
    tmp_path: Path, wanted: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    ask(tmp_path, Prompt(PROMPT, PARAMS))
    monkeypatch.setattr(DiskFiles, "write", full)
    (answer,), llm = ask(tmp_path, Prompt(LATER, PARAMS))
    assert bits(answer) == wanted
    assert answer.num_cached_tokens > 0.7 * len(PROMPT), "what is there is still read"
    assert llm._built.disk is not None and llm._built.disk.counts.lost > 0
    assert [line for line in capsys.readouterr().err.splitlines() if "No space left" in line][1:] == []


def test_damaged_weights_leave_no_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """K and V from weights whose checksums were not compared yet must not outlive the process."""
    monkeypatch.setattr("twostroke.weights.packed.background_check.BackgroundCheck.trusted", lambda *_: False)
    ask(tmp_path, Prompt(PROMPT, PARAMS))
    assert not list((tmp_path / "kv").rglob("*.kv"))


@pytest.mark.parametrize("asked", ["off", None])
def test_nothing_is_kept_unless_it_is_asked_for(asked: str | None, tmp_path: Path) -> None:
    with LLM("spark", threads=1, cache=str(tmp_path), kv_disk=asked) as llm:
        llm.engine.generate([Prompt(PROMPT, PARAMS)])
        assert llm.resolved["kv_disk"] == 0 and llm._built.disk is None
    assert not (tmp_path / "kv").exists()


@pytest.mark.parametrize("k", [1, 2, 7, 19])
@pytest.mark.parametrize("how", ["fails", "is damaged", "hangs"])
def test_a_reading_may_fail_at_any_part(
    how: str, k: int, wanted: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading fails at part number k of a prompt."""
    ask(tmp_path, Prompt(PROMPT, PARAMS))
    real, counted = DiskStore.read, itertools.count(1)
    over = threading.Event()

    def read(self: DiskStore, part: DiskPart, place: bytes) -> bytes | None:
        if next(counted) < k:
            return real(self, part, place)
        if how == "hangs":
            over.wait()
        return None if how == "fails" else real(self, part, bytes(16))

    monkeypatch.setattr(DiskStore, "read", read)
    monkeypatch.setattr(fetching, "PATIENCE", 0.0)
    try:
        (answer,), llm = ask(tmp_path, Prompt(LATER, PARAMS))
    finally:
        over.set()
    assert bits(answer) == wanted
    assert answer.num_cached_tokens < 16 * k or how == "hangs"
    llm._built.cache.check()
    assert llm._built.cache.pages_used == 0 and llm._built.cache.grafts == []


@pytest.mark.parametrize("k", range(1, 4))
def test_a_process_may_be_killed_between_files(
    k: int, wanted: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer ends at file number k, as if the process had ended. Whole files are used, and the rest is computed."""
    monkeypatch.setattr(saving, "FILE_PARTS", 5)
    real, counted = DiskFiles.write, itertools.count(1)

    def write(self: DiskFiles, name: str, pieces: Iterable[bytes]) -> int:
        if name != SECRET and next(counted) >= k:
            (self.folder / f"{name}.1-1.part").write_bytes(b"".join(pieces)[:100])
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(self, name, pieces)

    with monkeypatch.context() as patched:
        patched.setattr(DiskFiles, "write", write)
        ask(tmp_path, Prompt(PROMPT, PARAMS))
    (answer,), _ = ask(tmp_path, Prompt(LATER, PARAMS))
    assert bits(answer) == wanted
    assert answer.num_cached_tokens == 5 * (k - 1) * 16
