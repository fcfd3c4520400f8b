"""Conversations, streams of background responses and message batches, by the real OpenAI and Anthropic clients."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from openai import OpenAI

from tests.serve.apis.stored.test_stored_work import client_of, prompt, stored
from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving, wait_until


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Live]:
    with serving(fake_parts(stored=stored(tmp_path / "work"))) as live:
        yield live


@pytest.fixture
def client(kept: Live) -> Iterator[OpenAI]:
    with client_of(kept) as made:
        yield made


def claude(live: Live, key: str = "none") -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=live.url, api_key=key, max_retries=0)


def texts(client: OpenAI, name: str) -> list[str]:
    return [item.content[0].text for item in client.conversations.items.list(name, order="asc")]  # type: ignore[union-attr]


def user(text: str) -> Any:
    return {"type": "message", "role": "user", "content": text}


def test_a_conversation_grows_with_each_response(client: OpenAI, kept: Live) -> None:
    made = client.conversations.create(metadata={"a": "b"}, items=[user("first")])
    answer = client.responses.create(model=MODEL, input="second", conversation=made.id)
    assert answer.conversation is not None and answer.conversation.id == made.id
    assert prompt(kept) == "user: first\nuser: second\nassistant: "
    assert texts(client, made.id) == ["first", "second", "hello world"]
    with client.responses.stream(model=MODEL, input="third", conversation={"id": made.id}) as stream:
        list(stream)
    assert texts(client, made.id)[3:] == ["third", "hello world"]
    begun = client.responses.create(model=MODEL, input="fourth", conversation=made.id, background=True)
    wait_until(lambda: client.responses.retrieve(begun.id).status == "completed", "its end")
    wait_until(lambda: len(texts(client, made.id)) == 7, "the conversation to have the answer")
    assert prompt(kept).endswith("user: third\nassistant: hello world\nuser: fourth\nassistant: ")


def test_items_come_and_go(client: OpenAI) -> None:
    made = client.conversations.create()
    added = client.conversations.items.create(made.id, items=[user("x")] * 3)
    first = added.data[0].id
    assert first is not None and client.conversations.items.retrieve(first, conversation_id=made.id).id == first
    client.conversations.items.delete(first, conversation_id=made.id)
    assert len(texts(client, made.id)) == 2
    assert client.conversations.update(made.id, metadata={"k": "v"}).metadata == {"k": "v"}
    assert client.conversations.retrieve(made.id).metadata == {"k": "v"}
    assert client.conversations.delete(made.id).deleted
    for ask in (
        lambda: client.conversations.retrieve(made.id),
        lambda: client.conversations.delete(made.id),
        lambda: client.conversations.items.create(made.id, items=[user("x")]),
        lambda: client.responses.create(model=MODEL, input="x", conversation=made.id),
        lambda: client.conversations.items.delete("msg_x", conversation_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            ask()


def test_what_a_conversation_refuses(client: OpenAI, kept: Live) -> None:
    made = client.conversations.create()
    first = client.responses.create(model=MODEL, input="hi")
    for fields in ({"previous_response_id": first.id}, {"store": False}):
        body = {"model": MODEL, "input": "x", "conversation": made.id, **fields}
        assert kept.post("/v1/responses", body).status == 400
    path = f"/v1/conversations/{made.id}/items"
    for items in ([], [user("x")] * 21):
        assert kept.post(path, {"items": items}).status == 400
    assert kept.post("/v1/conversations", {"metadata": {str(i): "" for i in range(17)}}).status == 400
    assert texts(client, made.id) == []


def test_a_background_response_is_streamed_and_taken_up_again(client: OpenAI) -> None:
    stream = client.responses.create(model=MODEL, input="hi", background=True, stream=True)
    first = next(iter(stream))
    name = first.response.id  # type: ignore[union-attr]
    stream.close()  # its client leaves, and the work goes on
    wait_until(lambda: client.responses.retrieve(name).status == "completed", "its end")
    assert client.responses.retrieve(name).background is True
    events = list(client.responses.retrieve(name, stream=True))
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events))) and events[-1].type == "response.completed"
    assert events[-1].response.id == name and events[0].response.id == name  # type: ignore[union-attr]
    later = list(client.responses.retrieve(name, stream=True, starting_after=3))
    assert [event.to_dict() for event in later] == [event.to_dict() for event in events[4:]]
    plain = client.responses.create(model=MODEL, input="hi", background=True)
    wait_until(lambda: client.responses.retrieve(plain.id).status == "completed", "its end")
    with pytest.raises(openai.BadRequestError, match="stream: true"):
        list(client.responses.retrieve(plain.id, stream=True))


def test_a_stream_of_a_response_that_is_cancelled_ends(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.token_s = 0.05
    with serving(fake_parts(engine, stored=stored(tmp_path / "work"))) as live, client_of(live) as client:
        stream = client.responses.create(model=MODEL, input="hi", background=True, stream=True)
        name = next(iter(stream)).response.id  # type: ignore[union-attr]
        assert client.responses.cancel(name).status == "cancelled"
        assert "response.completed" not in [event.type for event in stream]


def asked(names: list[str], **params: Any) -> list[Any]:
    body = {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}], **params}
    return [{"custom_id": name, "params": body} for name in names]


def test_a_message_batch_runs(kept: Live) -> None:
    with claude(kept) as client:
        wrong = asked(["wrong"], temperature=9)
        begun = client.messages.batches.create(requests=[*asked(["a", "b"]), *wrong])
        assert begun.processing_status == "in_progress" and begun.request_counts.processing == 3
        wait_until(lambda: client.messages.batches.retrieve(begun.id).processing_status == "ended", "its end")
        done = client.messages.batches.retrieve(begun.id)
        assert done.request_counts.to_dict() == {
            "processing": 0, "succeeded": 2, "errored": 1, "canceled": 0, "expired": 0
        }  # fmt: skip
        results = {each.custom_id: each.result for each in client.messages.batches.results(begun.id)}
        good, bad = results["a"], results["wrong"]
        assert good.type == "succeeded" and good.message.content[0].text == "hello world"  # type: ignore[union-attr]
        assert bad.type == "errored" and bad.error.error.type == "invalid_request_error"
        assert [each.id for each in client.messages.batches.list()] == [begun.id]
        with client_of(kept) as other:
            assert list(other.batches.list()) == []
            with pytest.raises(openai.NotFoundError):
                other.batches.retrieve(begun.id)
        assert client.messages.batches.delete(begun.id).type == "message_batch_deleted"
        assert list(client.messages.batches.list()) == [] and kept.get("/v1/files").json["data"] == []
        for ask in (client.messages.batches.retrieve, client.messages.batches.delete, client.messages.batches.cancel):
            with pytest.raises(anthropic.NotFoundError):
                ask(begun.id)


def test_a_message_batch_is_cancelled(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.token_s = 0.05
    with serving(fake_parts(engine, stored=stored(tmp_path / "work"))) as live, claude(live) as client:
        begun = client.messages.batches.create(requests=asked([f"r{place}" for place in range(50)]))
        with pytest.raises(anthropic.NotFoundError):
            client.get(f"/v1/messages/batches/{begun.id}/results", cast_to=object)
        with pytest.raises(anthropic.ConflictError, match="cancel it first"):
            client.messages.batches.delete(begun.id)
        assert client.messages.batches.cancel(begun.id).processing_status in ("canceling", "ended")
        wait_until(lambda: client.messages.batches.retrieve(begun.id).processing_status == "ended", "its end")
        counts = client.messages.batches.retrieve(begun.id).request_counts
        assert counts.canceled > 0 and counts.canceled + counts.succeeded == 50
        kinds = [each.result.type for each in client.messages.batches.results(begun.id)]
        assert kinds.count("canceled") == counts.canceled and len(kinds) == 50


@pytest.mark.parametrize(
    ("requests", "words"),
    [
        ([], "1 to"),
        (asked(["a", "a"]), "Two requests"),
        (asked(["a b"]), "custom_id"),
        (asked(["a"], stream=True), "streams nothing"),
        ([{"custom_id": "a"}], "params"),
    ],
)
def test_a_message_batch_that_cannot_run_is_refused_whole(requests: list[Any], words: str, kept: Live) -> None:
    answer = kept.post("/v1/messages/batches", {"requests": requests})
    assert answer.status == 400 and words in json.dumps(answer.json)
    assert answer.json["type"] == "error"


def test_without_a_folder_there_are_none(live: Live) -> None:
    with claude(live) as client, pytest.raises(anthropic.NotFoundError, match="--stored-work"):
        client.messages.batches.list()
    with client_of(live) as other, pytest.raises(openai.NotFoundError, match="--stored-work"):
        other.conversations.create()


def test_an_unknown_conversation_is_told_in_words(client: OpenAI) -> None:
    with pytest.raises(openai.NotFoundError, match="Conversation with id 'conv_x' not found"):
        client.conversations.retrieve("conv_x")
