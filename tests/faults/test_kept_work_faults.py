"""Kept work on a full disk, and in a process that is killed at any moment. Finished work is not lost, and every record
is whole."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.disk.test_slots import act, complete, spark
from tests.serve.apis.stored.test_stored_work import (
    MODEL,
    batch_ended,
    chat,
    client_of,
    ended,
    lines_of,
    results,
    stored,
)
from tests.serve.fakes import fake_parts
from tests.serve.harness import serving, wait_until
from twostroke.server.stored import batches, keeping, records
from twostroke.server.stored.batch_lines import Journal
from twostroke.server.stored.records import Bounds, Records

KILLS = 8


class Full:
    """A disk on which calls fail while `is_full`."""

    def __init__(self, real: Callable[..., Any]) -> None:
        self.real, self.is_full, self.refused = real, False, 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.real(*args, **named)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Full:
    """The place for records. Work that waits for room looks often."""
    made = Full(os.fsync)
    monkeypatch.setattr(records.os, "fsync", made)
    monkeypatch.setattr(batches, "FULL_S", 0.01)
    monkeypatch.setattr(keeping, "FULL_S", 0.01)
    return made


def test_a_batch_waits_for_room_and_loses_no_line(
    tmp_path: Path, disk: Full, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Full(Journal.add)
    monkeypatch.setattr(Journal, "add", lambda own, result: journal(own, result))
    with serving(fake_parts(stored=stored(tmp_path))) as live, client_of(live) as client:
        data = lines_of(*(chat(str(n)) for n in range(20)))
        file = client.files.create(file=("in.jsonl", data), purpose="batch")
        journal.is_full = True
        begun = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        wait_until(lambda: journal.refused > 1, "a line without room")
        disk.is_full, journal.is_full = True, False
        wait_until(lambda: disk.refused > 1, "a try on the full disk")
        told: Any = client.batches.retrieve(begun.id)
        assert told.status == "in_progress" and told.errors.data[0].code == "storage_full"
        assert "No space left" in told.errors.data[0].message
        disk.is_full = False
        done = batch_ended(client, begun.id)
        assert done.status == "completed" and done.errors is None
        assert set(results(client, done.output_file_id)) == {f"c{n}" for n in range(20)}


def test_a_cancelled_batch_on_a_full_disk_is_cancelled_when_there_is_room(tmp_path: Path, disk: Full) -> None:
    with serving(fake_parts(stored=stored(tmp_path))) as live, client_of(live) as client:
        file = client.files.create(file=("in.jsonl", lines_of(chat("a"), chat("b"))), purpose="batch")
        live.parts.serving.stored.batches.may_run = _never  # type: ignore[union-attr]
        begun = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        wait_until(lambda: client.batches.retrieve(begun.id).status == "in_progress", "its begin")
        disk.is_full = True
        assert client.batches.cancel(begun.id).status == "cancelling"
        assert client.batches.retrieve(begun.id).status == "cancelling"
        disk.is_full = False
        assert batch_ended(client, begun.id).status == "cancelled"


async def _never(_model: str) -> bool:
    return False


def test_a_background_response_is_kept_when_there_is_room(tmp_path: Path, disk: Full) -> None:
    with serving(fake_parts(stored=stored(tmp_path))) as live, client_of(live) as client:
        with_room = client.responses.create(model=MODEL, input="hi", background=True)
        assert ended(client, with_room.id).status == "completed"
        disk.is_full = True
        with pytest.raises(openai.APIStatusError) as refused:
            client.responses.create(model=MODEL, input="hi", background=True)
        assert refused.value.status_code == 507 and "No space left" in str(refused.value)
        disk.is_full = False
        disk.real = _full_after(2, disk)
        begun = client.responses.create(model=MODEL, input="hi", background=True)
        wait_until(lambda: disk.refused > 3, "its end without room")
        assert client.responses.retrieve(begun.id).status in ("queued", "in_progress")
        disk.is_full = False
        done = ended(client, begun.id)
        assert (done.status, done.output_text) == ("completed", "hello world")


def _full_after(count: int, disk: Full) -> Callable[..., Any]:
    """Allows this many writes of work; then the disk is full."""
    left = [count]

    def fsync(descriptor: int) -> None:
        os.fdatasync(descriptor)
        left[0] -= 1
        disk.is_full = left[0] == 0

    return fsync


def test_a_slot_on_a_full_disk_is_one_clear_error_and_the_old_one_stays(tmp_path: Path, disk: Full) -> None:
    with spark(tmp_path) as live:
        complete(live, "What is prefill?")
        saved = act(live, "save", filename="talk").json
        complete(live, "Something longer than that, of another talk.")
        disk.is_full = True
        refused = act(live, "save", filename="talk")
        assert refused.status == 507 and "No space left" in refused.json["error"]["message"]
        disk.is_full = False
        assert act(live, "restore", 1, filename="talk").json["n_restored"] == saved["n_saved"]
        assert not list(tmp_path.rglob("*.new"))


WRITER = """
import itertools, sys
from pathlib import Path
from twostroke.server.stored.records import Bounds, Records
from twostroke.weights.store.aliases import set_alias
folder = Path(sys.argv[1])
kept = Records(folder / "kept", ".json", Bounds(), lambda: 0.0, forget_oldest=False)
for n in itertools.count(1):
    text = '{"n": %d, "text": "%s"}' % (n, "x" * (n % 977 * 100))
    kept.put("", f"r{n % 3}", text.encode())
    set_alias(folder / "aliases.toml", f"a{n % 5}", f"acme/m{n}")
    print(n, flush=True)
"""


def test_records_and_aliases_are_whole_whenever_their_writer_is_killed(tmp_path: Path) -> None:
    from twostroke.weights.store.aliases import read_aliases

    told: dict[str, int] = {}
    for kill in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        for _ in range(1 + 13 * kill):
            last = int(process.stdout.readline())
            told[f"r{last % 3}"] = last
        process.send_signal(signal.SIGKILL)
        process.communicate()
        kept = Records(tmp_path / "kept", ".json", Bounds(), lambda: 0.0, forget_oldest=False)
        for name, number in told.items():
            data = kept.get("", name)
            assert data is not None
            found = json.loads(data)
            assert found["n"] >= number and found["n"] % 3 == number % 3
            assert found["text"] == "x" * (found["n"] % 977 * 100)
        aliases = read_aliases(tmp_path / "aliases.toml")
        assert all(meaning.startswith("acme/m") for meaning in aliases.values()) and aliases
        told.clear()
