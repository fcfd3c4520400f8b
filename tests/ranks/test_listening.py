"""A rank that listens: an error of one caller, or of one call to the system, ends neither the rank nor its wait."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from tests.patience import PATIENCE_S
from twostroke.assembly.processes import member
from twostroke.assembly.processes.member import called
from twostroke.cli.server import rank as rank_module
from twostroke.distributed.ranks.frames import RANKS_VERSION, Frame, RankBegin, RankFailed, RankJoin
from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.types.errors import BackendError

SECRET, TICKET = b"s" * 32, b"t" * 16
BEGIN = RankBegin(RANKS_VERSION, "tensor", 1, 2, {}, (4,), 0, 0, "m", 8, 1.0, TICKET, ("", ""))


class Broken:
    """A connection that was reset before its options were set."""

    family = socket.AF_INET

    def setsockopt(self, *words: Any) -> None:
        raise OSError(errno.EINVAL, "reset")

    def close(self) -> None:
        """Does nothing, because nothing is open."""


class Callers:
    """A listener with these callers in turn: errors of `accept`, and connections. No caller comes later."""

    def __init__(self, *callers: Any) -> None:
        self.left = list(callers)

    def settimeout(self, seconds: float | None) -> None:
        """Does nothing, because nothing waits."""

    def accept(self) -> Any:
        caller = self.left.pop(0) if self.left else TimeoutError()
        if isinstance(caller, BaseException):
            raise caller
        return caller, ("peer", 1)


def says(*frames: Frame, secret: bytes = SECRET) -> tuple[socket.socket, Callable[[], list[Frame]]]:
    """A connection whose other side greets and sends this. Returns what it receives until the end."""
    ours, theirs = socket.socketpair()
    heard: list[Frame] = []

    def talk() -> None:
        line = RankLine(theirs)
        try:
            line.prove(secret, leads=True)
            for frame in frames:
                line.send(frame)
            while True:
                heard.append(line.receive())
        except RankLineLost:
            line.close()

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()

    def ended() -> list[Frame]:
        thread.join(PATIENCE_S)
        return heard

    return ours, ended


def test_callers_that_fail_are_turned_away_and_the_group_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "PAUSE_S", 0.0)
    gone, theirs = socket.socketpair()
    theirs.close()
    other = msgspec.structs.replace(BEGIN, version=RANKS_VERSION + 1)
    leader, joins = says(BEGIN)[0], says(RankJoin(TICKET, 0))[0]
    callers = Callers(
        OSError(errno.ECONNABORTED, "aborted"),
        Broken(),
        OSError(errno.EMFILE, "too many files"),
        gone,
        says(BEGIN, secret=b"x" * 32)[0],
        says(other)[0],
        leader,
        OSError(errno.ENOBUFS, "no room"),
        joins,
    )
    said: list[str] = []
    meeting = called(callers, SECRET, said.append)  # type: ignore[arg-type]
    assert meeting.begin == BEGIN and meeting.sockets == {0: joins} and not callers.left
    assert len(said) == 4 and "secret" in said[2] and "another version" in said[3]
    meeting.close()


def test_a_leader_hears_which_rank_was_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(address: Any, secret: bytes, rank: int) -> RankLine:
        raise BackendError(f"Nothing answers for rank {rank}.")

    monkeypatch.setattr(member, "connect", connect)
    leader, heard = says(msgspec.structs.replace(BEGIN, ranks=3, peers=("", "", "127.0.0.1:1")))
    with pytest.raises(RankLineLost, match="rank 2"):
        called(Callers(leader), SECRET, print)  # type: ignore[arg-type]
    leader.close()
    assert heard() == [RankFailed("Nothing answers for rank 2.", 1)]


def test_a_group_that_breaks_off_does_not_end_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rank listens until its listener is broken."""
    broken = BackendError("The listening socket is broken.")
    outcomes = [RankLineLost("the other ranks did not come"), ConnectionResetError(), broken]

    def called_once(*words: Any) -> Any:
        raise outcomes.pop(0)

    monkeypatch.setattr(member, "called", called_once)
    with pytest.raises(BackendError, match="listening socket"):
        rank_module._listen("spark", {}, ("127.0.0.1", 0), None, False)
    assert not outcomes
