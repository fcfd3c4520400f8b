"""Damage in packed weights after the start ends the engine, and no answer comes from it without an error."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from tests.weights.checkpoints import CONFIG, random_tensors, write
from tests.weights.packed.test_packed_damage import flip
from tests.weights.packed_start import Start
from twostroke.engine.async_engine import AsyncEngine
from twostroke.engine.sync_engine import SyncEngine
from twostroke.types.errors import EngineStopped
from twostroke.weights.packed import background_check, room
from twostroke.weights.packed import file as packed_file
from twostroke.weights.packed.background_check import BackgroundCheck

from ..engine.fakes import bench

LARGE = {**CONFIG, "hidden_size": 768, "vocab_size": 4096}


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A start from a file of several chunks, two blocks of which are read before."""
    monkeypatch.setattr(room, "KEPT_FREE_BYTES", 0)
    monkeypatch.setattr(packed_file, "SAMPLED_BLOCKS", 2)
    monkeypatch.setattr(packed_file, "CHUNK_BLOCKS", 4)
    monkeypatch.setattr(background_check, "DELAY_S", 60.0)
    model = write(tmp_path / "model", LARGE, random_tensors(LARGE))
    Start(model, tmp_path / "cache", LARGE)
    return Start(model, tmp_path / "cache", LARGE)


def noise(start: Start) -> None:
    """Writes 200 KB of noise at a third of the file."""
    flip(start.entry.path, start.entry.plan.file_bytes // 3, 200_000, 0x5A)


def test_a_sound_file_is_compared_whole(start: Start) -> None:
    check = BackgroundCheck(start.file)
    check.start()
    check.finish()
    assert check.complete and start.entry.path.exists()
    check.close()
    check.close()


def test_damage_is_one_clear_error_and_the_file_is_thrown_away(start: Start) -> None:
    noise(start)
    assert not start.warnings, "the sample does not see it"
    check = BackgroundCheck(start.file)
    check.require_sound()
    check.start()
    with pytest.raises(EngineStopped, match="packed weights of this model are damaged") as caught:
        check.finish()
    assert "do not have their checksum" in caught.value.why and "packed anew" in caught.value.fix
    with pytest.raises(EngineStopped):
        check.require_sound()
    assert not start.entry.path.exists() and not check.complete
    assert all(np.count_nonzero(vector) for vector in start.weights.vectors.values()), "what is mapped stays mapped"


def test_a_file_that_took_the_name_meanwhile_is_left_alone(start: Start) -> None:
    noise(start)
    start.entry.path.rename(start.entry.path.with_suffix(".old"))
    start.entry.path.write_bytes(b"another")
    check = BackgroundCheck(start.file)
    check.start()
    with pytest.raises(EngineStopped):
        check.finish()
    assert start.entry.path.read_bytes() == b"another"


def test_closing_does_not_wait_for_the_rest(start: Start) -> None:
    check = BackgroundCheck(start.file)
    check.start()
    check.close()
    assert not check.complete and not any(each.name == "twostroke-check" for each in threading.enumerate())


class SlowDisk:
    """A file whose bytes are on the disk when `written` is set."""

    path, unfinished = Path("model.pack"), True

    def __init__(self) -> None:
        self.written = threading.Event()
        self.is_whole = self.is_discarded = False

    def check_all(self, go_on: object) -> bool:
        self.is_whole = self.written.wait(60.0)
        return self.is_whole

    def close(self) -> None: ...

    def discard(self) -> None:
        self.is_discarded = True


def test_an_end_that_waits_for_the_disk_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_check, "SILENT_S", 0.01)
    disk, told = SlowDisk(), list[str]()

    def tell(sentence: str) -> None:
        told.append(sentence)
        disk.written.set()

    check = BackgroundCheck(disk, tell)
    check.start()
    check.close()
    assert told == [background_check.WAITING] and disk.is_whole


def test_ctrl_c_gives_up_what_is_not_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_check, "SILENT_S", 0.01)
    disk = SlowDisk()

    def interrupted(sentence: str) -> None:
        raise KeyboardInterrupt

    check = BackgroundCheck(disk, interrupted)
    check.start()
    with pytest.raises(KeyboardInterrupt):
        check.finish()
    check.close()  # this does not wait again
    assert disk.is_discarded and not disk.is_whole
    disk.written.set()


def test_an_end_that_need_not_wait_says_nothing(start: Start) -> None:
    told: list[str] = []
    check = BackgroundCheck(start.file, told.append)
    check.start()
    check.close()
    assert not told


def test_weights_in_memory_have_nothing_to_compare() -> None:
    check = BackgroundCheck(None)
    check.start()
    check.finish()
    assert check.complete
    check.close()


def test_an_engine_that_is_not_sound_ends_instead_of_answering() -> None:
    made = bench()
    damaged = threading.Event()

    def require_sound() -> None:
        if damaged.is_set():
            raise EngineStopped("damaged")

    made.stepper._require_sound = require_sound
    engine = SyncEngine(made.stepper)
    prompt = made.prompt("question", "abc", max_tokens=40)
    stream = engine.stream([prompt])
    next(stream)
    damaged.set()
    with pytest.raises(EngineStopped, match="damaged"):
        list(stream)
    with pytest.raises(EngineStopped, match="damaged"):
        engine.generate([prompt])
    assert made.is_empty()


def test_a_server_that_is_not_sound_refuses_and_says_why() -> None:
    made = bench()

    def require_sound() -> None:
        raise EngineStopped("The packed weights are damaged.")

    made.stepper._require_sound = require_sound

    async def main() -> None:
        engine = AsyncEngine(made.stepper)
        await engine.start()
        with pytest.raises(EngineStopped):
            await engine.generate(made.prompt("question", "abc", max_tokens=4))
        with pytest.raises(EngineStopped):
            await engine.generate(made.prompt("another", "abc", max_tokens=4))
        await engine.stop()
        assert not engine.alive

    asyncio.run(main())
    assert [str(fault) for fault in made.faults] == ["The packed weights are damaged."]
