"""The page's chats on a server: separate for each key, whole after any failure, and never written over an unseen
change."""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serve.fakes import fake_parts
from tests.serve.harness import Live, Reply, serving
from twostroke.server.stored import chats as module
from twostroke.server.stored.chats import StoredChats
from twostroke.types.errors import ConfigError

PATH = "/v1/chats"


def export(text: str) -> dict[str, Any]:
    """What the page sends."""
    chat = {"id": "a", "at": 1, "turns": [{"question": text, "answer": {"text": "x"}}]}
    return {"format": "twostroke-chats", "version": 1, "chats": [chat], "contents": {}}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Live]:
    with serving(fake_parts(chats=StoredChats(tmp_path / "chats", 1 << 20))) as live:
        yield live


def put(live: Live, name: str, body: Any, **headers: str) -> Reply:
    return live.call("PUT", f"{PATH}/{name}", body, {key.replace("_", "-"): value for key, value in headers.items()})


def names(live: Live, **headers: str) -> list[str]:
    return [each["id"] for each in live.get(PATH, **headers).json["data"]]


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_chat_comes_back_as_it_was_sent(kept: Live, tmp_path: Path) -> None:
    sent = json.dumps(export("hi"), indent=1).encode()
    made = put(kept, "one", sent, if_none_match="*")
    assert made.status == 200
    (listed,) = kept.get(PATH).json["data"]
    assert listed == {"id": "one", "object": "chat", "revision": made.json["revision"]}
    found = kept.get(f"{PATH}/one")
    assert found.body == sent and found.headers["etag"] == f'"{listed["revision"]}"'
    assert [oct(path.stat().st_mode & 0o777) for path in files(tmp_path)] == ["0o600"]
    assert oct((tmp_path / "chats").stat().st_mode & 0o777) == "0o700"
    assert kept.call("DELETE", f"{PATH}/one").json["deleted"]
    assert kept.get(f"{PATH}/one").status == 404 and kept.call("DELETE", f"{PATH}/one").status == 404
    assert names(kept) == [] and files(tmp_path) == []


def test_nobody_writes_over_a_change_that_was_not_seen(kept: Live) -> None:
    first = put(kept, "one", export("a"), if_none_match="*").json["revision"]
    assert put(kept, "one", export("b"), if_none_match="*").status == 412
    second = put(kept, "one", export("b"), if_match=f'"{first}"').json["revision"]
    assert second != first
    refused = put(kept, "one", export("c"), if_match=f'"{first}"')
    assert (refused.status, refused.error["code"]) == (412, "chat_changed")
    assert json.loads(kept.get(f"{PATH}/one").body) == export("b")
    kept.call("DELETE", f"{PATH}/one")
    assert put(kept, "one", export("c"), if_match=f'"{second}"').status == 412
    assert put(kept, "one", export("c"), if_match="bare").status == 400


def test_of_many_writers_at_once_one_wins(kept: Live) -> None:
    begun = put(kept, "one", export("a")).json["revision"]
    found: list[int] = []

    def write(number: int) -> None:
        found.append(put(kept, "one", export(f"{number}"), if_match=f'"{begun}"').status)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(found) == [200] + [412] * 7


@pytest.mark.parametrize("name", ["..", ".hidden", "a%2Fb", "a%00", "-x", "x" * 129, "%C3%A9"])
def test_a_name_is_never_a_path(kept: Live, tmp_path: Path, name: str) -> None:
    assert put(kept, name, export("a")).status in (400, 404)
    assert kept.get(f"{PATH}/{name}").status in (400, 404)
    assert kept.call("DELETE", f"{PATH}/{name}").status in (400, 404)
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"format": "twostroke-chats", "version": 1, "chats": []}',
        {**export("a"), "format": "other"},
        {**export("a"), "chats": [7]},
        {**export("a"), "contents": []},
        b'{"format": "twostroke-chats", "version": 1, "chats": [{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
    ],
)
def test_what_is_no_export_of_one_chat_is_refused(kept: Live, tmp_path: Path, body: Any) -> None:
    assert put(kept, "one", body).status == 400
    assert files(tmp_path) == []


def test_each_key_has_its_own(tmp_path: Path) -> None:
    with serving(fake_parts(chats=StoredChats(tmp_path, 1 << 20), api_key="aaa,bbb")) as live:
        one, two = {"authorization": "Bearer aaa"}, {"authorization": "Bearer bbb"}
        assert put(live, "mine", export("a"), **one).status == 200
        assert names(live, **one) == ["mine"] and names(live, **two) == []
        assert live.get(f"{PATH}/mine", **two).status == 404
        assert live.call("DELETE", f"{PATH}/mine", headers=two).status == 404
        assert live.get(PATH).status == 401 and put(live, "x", export("a")).status == 401


def test_they_are_bounded_in_bytes_and_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CHATS", 2)
    with serving(fake_parts(chats=StoredChats(tmp_path, 1000))) as live:
        refused = put(live, "long", export("x" * 1000))
        assert (refused.status, refused.error["code"]) == (507, "storage_full")
        assert "--chats-bytes" in refused.error["message"]
        assert put(live, "a", export("a")).status == put(live, "b", export("b")).status == 200
        assert put(live, "c", export("c")).status == 507
        assert put(live, "b", export("bb")).status == 200  # in its own place there is room
        assert sorted(names(live)) == ["a", "b"]


def test_without_the_option_nothing_is_kept_and_each_path_says_so(tmp_path: Path) -> None:
    with serving(fake_parts()) as live:
        for reply in (live.get(PATH), live.get(f"{PATH}/a"), put(live, "a", export("a")),
                      live.call("DELETE", f"{PATH}/a")):  # fmt: skip
            assert (reply.status, reply.error["code"]) == (404, "not_stored") and "--chats" in reply.error["message"]
        assert live.get("/v1/engine/about").json["chats"] is False
    with serving(fake_parts(chats=StoredChats(tmp_path, 1 << 20))) as live:
        assert live.get("/v1/engine/about").json["chats"] is True


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError) as raised:
        StoredChats(tmp_path / "file" / "chats", 1 << 20)
    assert "--chats" in str(raised.value) and "cannot be written" in str(raised.value)


@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_full_disk_keeps_the_old_chat_and_leaves_no_part(
    kept: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    put(kept, "one", export("old"))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if call == "write":
        monkeypatch.setattr(os, "open", full)
    else:
        monkeypatch.setattr(os, call, full)
    refused = put(kept, "one", export("new"))
    monkeypatch.undo()
    assert refused.status == 507 and "No space left" in refused.error["message"]
    assert json.loads(kept.get(f"{PATH}/one").body) == export("old")
    assert [path.name for path in files(tmp_path)] == ["one.json"]


def test_a_chat_that_cannot_be_read_is_passed_over(kept: Live, tmp_path: Path) -> None:
    put(kept, "one", export("a"))
    put(kept, "two", export("b"))
    (path,) = (each for each in files(tmp_path) if each.name == "two.json")
    path.unlink()
    path.mkdir()  # reading it fails for every user, root too
    found = {each["id"]: each["revision"] for each in kept.get(PATH).json["data"]}
    assert found["two"] == "" and found["one"]
    for refused in (kept.get(f"{PATH}/two"), put(kept, "two", export("c")),
                    put(kept, "two", export("c"), if_none_match="*")):  # fmt: skip
        assert (refused.status, refused.error["code"]) == (503, "storage_unreadable")
    assert kept.get(f"{PATH}/one").status == 200


def test_a_folder_that_cannot_be_read_is_not_an_empty_one(kept: Live, tmp_path: Path) -> None:
    put(kept, "one", export("a"))
    place = tmp_path / "chats" / "anyone"
    place.rename(tmp_path / "away")
    place.write_text("")  # this is no folder, for any user
    refused = kept.get(PATH)
    assert (refused.status, refused.error["code"]) == (503, "storage_unreadable")
    assert put(kept, "two", export("b")).status == 507
    place.unlink()
    (tmp_path / "away").rename(place)
    assert names(kept) == ["one"]
