"""Hubs that cannot be reached, that are busy, that break off, and what is refused then."""

from __future__ import annotations

import errno
import logging
import socket
import threading

import httpx2
import pytest

from tests.patience import PATIENCE_S
from tests.weights.hub.names import MODEL, SHARD, first_bytes
from twostroke.types.errors import ModelError, ModelNotFound
from twostroke.weights.hub import resume as hub_resume
from twostroke.weights.hub.hub import resolve_config, resolve_model
from twostroke.weights.hub.offer import offer_of
from twostroke.weights.hub.reference import Reference
from twostroke.weights.hub.retries import SENTENCE, Notice, RetryWaits, say_once


def refused(monkeypatch: pytest.MonkeyPatch) -> str:
    """An endpoint without a server."""
    return "http://127.0.0.1:9"


def unknown(monkeypatch: pytest.MonkeyPatch) -> str:
    """An endpoint whose name is not known."""

    def not_known(*args: object, **options: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", not_known)
    return "http://hub.invalid"


def silent(monkeypatch: pytest.MonkeyPatch) -> str:
    """An endpoint that accepts no connection, and refuses none."""

    def lost(self: object, address: object) -> None:
        raise TimeoutError("timed out")

    monkeypatch.setattr("socket.socket.connect", lost)
    return "http://127.0.0.1:9"


@pytest.mark.parametrize("broken", [refused, unknown, silent])
def test_a_hub_that_cannot_be_reached_is_asked_once(broken, tmp_path, monkeypatch):
    """A wait before another attempt would fail this test."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr("time.sleep", lambda seconds: pytest.fail(f"a wait of {seconds} s"))
    endpoint = broken(monkeypatch)
    with pytest.raises(ModelNotFound, match="could not be reached"):
        resolve_model(MODEL, cache_dir=tmp_path, endpoint=endpoint)
    with pytest.raises(ModelNotFound, match="could not be reached"):
        resolve_config(MODEL, cache_dir=tmp_path, endpoint=endpoint)
    with pytest.raises(ModelError, match="could not be downloaded") as caught:
        resolve_model(f"{MODEL}:Q4_0", cache_dir=tmp_path, endpoint=endpoint)
    assert "cannot be reached" in (caught.value.why or "") and "Check the network" in (caught.value.fix or "")
    assert offer_of(Reference(MODEL), endpoint=endpoint, cache_dir=tmp_path) is None


def test_a_busy_hub_is_asked_again(pull, hub):
    hub.broken, hub.mends_after_waits = True, 3
    assert pull("acme/ggufs:Q8_0").path.read_bytes() == b"GGUF8"
    assert hub.waits_s == [1.0, 2.0, 4.0]
    hub.waits_s.clear()
    hub.broken, hub.mends_after_waits = True, 0
    with pytest.raises(ModelError, match="interrupted"):
        pull("acme/measured:Q8_0")
    assert sum(hub.waits_s) == 60.0


def test_a_download_waits_for_a_network_that_was_lost(pull, hub, files, caplog):
    def lose(name: str) -> None:
        hub.broken = True

    hub.stops_at["model.gguf"], hub.mends_after_waits = (3, lose), 5
    assert pull("acme/gguf:model.gguf").path.read_bytes() == b"GGUF"
    assert hub.waits_s == [1.0, 2.0, 4.0, 8.0, 15.0] and first_bytes(hub, "model.gguf") == [3]
    assert [record.getMessage() for record in caplog.records].count(SENTENCE) == 1


def test_files_that_wait_together_are_named_in_one_sentence(hub, caplog):
    notice = Notice()
    for waits in (RetryWaits(notice), RetryWaits(notice)):
        waits.wait(httpx2.ReadTimeout("silence"))
        waits.renew()
        waits.wait(httpx2.ReadTimeout("silence"))
    assert hub.waits_s == [1.0] * 4 and [record.getMessage() for record in caplog.records] == [SENTENCE]
    with pytest.raises(ZeroDivisionError):
        RetryWaits(notice).wait(ZeroDivisionError())


def test_a_connection_that_falls_silent_counts_as_lost(pull, hub, files, monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(hub_resume, "SILENCE_S", 1.0)
    hub.stops_at[SHARD] = (1000, lambda name: ended.wait(PATIENCE_S))
    try:
        folder = pull()
    finally:
        ended.set()
    assert (folder.path / SHARD).read_bytes() == files[SHARD] and 1000 in first_bytes(hub, SHARD)


def test_repeated_attempts_are_named_in_one_sentence():
    """The client of the hub writes two lines for each of six attempts."""
    say_once()
    client = logging.getLogger("huggingface_hub.utils._http")
    shown = []
    for text in ("down, thrown while requesting GET x", *(f"Retrying in 1s [Retry {n}/5]." for n in (1, 2)), "other"):
        record = logging.LogRecord(client.name, logging.WARNING, "", 0, text, (), None)
        shown += [record.getMessage()] if client.filter(record) else []
    assert shown == [SENTENCE, "other"]


def test_a_broken_hub_and_what_is_cached(pull, hub):
    good = pull()
    hub.broken = True
    assert pull() == good
    hub.repos["acme/other"] = hub.repos[MODEL]
    with pytest.raises(ModelNotFound, match="could not be reached"):
        pull("acme/other")


def test_a_login_is_not_sent_to_another_endpoint(pull, hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    pull()
    assert hub.authorizations == {None}
    pull("acme/tiny", revision="v1", token="hf_given")
    assert "Bearer hf_given" in hub.authorizations and "Bearer hf_secret" not in hub.authorizations


def test_a_full_disk(monkeypatch, pull):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("huggingface_hub.snapshot_download", full)
    with pytest.raises(ModelError, match="disk is full"):
        pull()


def test_unknown_errors_are_not_hidden(monkeypatch, pull):
    def broken(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr("huggingface_hub.snapshot_download", broken)
    with pytest.raises(ZeroDivisionError):
        pull()
