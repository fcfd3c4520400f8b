"""Stored responses, files and batches, by the real OpenAI client: kept, private, bounded, and across restarts."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.serve.fakes import MODEL, FakeEngine, fake_parts
from tests.serve.harness import Live, serving, wait_until
from twostroke.server.serving import new_hex_id
from twostroke.server.stored.batch_lines import done_lines, read_lines
from twostroke.server.stored.records import Bounds, FullFolder, Records
from twostroke.server.stored.work import StoredWork

BOUNDS = Bounds(max_bytes=1 << 20, max_count=50)


def stored(folder: Path, bounds: Bounds = BOUNDS, clock: Callable[[], float] = time.time) -> StoredWork:
    return StoredWork(folder, bounds, new_hex_id, clock, width=3)


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Live]:
    with serving(fake_parts(stored=stored(tmp_path / "work"))) as live:
        yield live


def client_of(live: Live, key: str = "none") -> OpenAI:
    return OpenAI(base_url=live.url + "/v1", api_key=key, max_retries=0)


@pytest.fixture
def client(kept: Live) -> Iterator[OpenAI]:
    with client_of(kept) as made:
        yield made


def prompt(live: Live) -> str:
    return bytes(live.parts.serving.engine.prompts[-1].token_ids).decode()  # type: ignore[attr-defined]


def test_a_response_is_kept_and_goes_on(client: OpenAI, kept: Live) -> None:
    first = client.responses.create(model=MODEL, input="hi", instructions="be kind")
    assert first.store is True and first.output_text == "hello world"  # type: ignore[attr-defined]
    assert client.responses.retrieve(first.id).output_text == "hello world"
    second = client.responses.create(model=MODEL, input="more", previous_response_id=first.id)
    assert second.previous_response_id == first.id
    assert prompt(kept) == "user: hi\nassistant: hello world\nuser: more\nassistant: "  # without the instructions
    last: Any = [{"role": "user", "content": "x"}]
    third = client.responses.create(model=MODEL, input=last, previous_response_id=second.id)
    items = client.responses.input_items.list(third.id, order="asc", limit=2)
    assert [item.content[0].text for item in items] == ["hi", "hello world", "more", "hello world", "x"]  # type: ignore[union-attr]
    client.responses.delete(first.id)
    assert client.responses.create(model=MODEL, input="z", previous_response_id=second.id).id
    with pytest.raises(openai.NotFoundError, match="was removed") as gone:
        client.responses.retrieve(first.id)
    assert "keeps none" not in str(gone.value), "this server keeps responses"
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(model=MODEL, input="z", previous_response_id=first.id)
    assert refused.value.code == "previous_response_not_found"


def test_a_streamed_response_is_kept_when_its_last_event_is_there(client: OpenAI, kept: Live) -> None:
    with client.responses.stream(model=MODEL, input="hi") as stream:
        events = list(stream)
    final = events[-1].response  # type: ignore[union-attr]
    assert events[-1].type == "response.completed" and final.store is True
    assert client.responses.retrieve(final.id).output_text == "hello world"
    following = client.responses.create(model=MODEL, input="more", previous_response_id=final.id, stream=True)
    assert [event.type for event in following][-1] == "response.completed"
    assert "hello world" in prompt(kept)


def test_what_is_not_to_be_stored_is_not(client: OpenAI, kept: Live) -> None:
    made = client.responses.create(model=MODEL, input="hi", store=False)
    assert made.store is False  # type: ignore[attr-defined]
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(made.id)
    with pytest.raises(openai.BadRequestError, match="store: false"):
        client.responses.create(model=MODEL, input="hi", store=False, background=True)
    wrong = kept.post("/v1/responses", {"model": MODEL, "input": "hi", "temperature": 9})
    assert wrong.status == 400


def test_without_a_folder_the_words_say_how_to_get_one(live: Live) -> None:
    with client_of(live) as plain:
        assert plain.responses.create(model=MODEL, input="hi").store is False  # type: ignore[attr-defined]
        with pytest.raises(openai.BadRequestError, match="--stored-work"):
            plain.responses.create(model=MODEL, input="hi", previous_response_id="resp_1")
        with pytest.raises(openai.BadRequestError, match="--stored-work"):
            plain.responses.create(model=MODEL, input="hi", background=True)
        for ask in (plain.files.list, plain.batches.list):
            with pytest.raises(openai.NotFoundError, match="--stored-work"):
                ask()


def ended(client: OpenAI, name: str) -> Any:
    wait_until(lambda: client.responses.retrieve(name).status not in ("queued", "in_progress"), "its end")
    return client.responses.retrieve(name)


def test_background(client: OpenAI, kept: Live) -> None:
    begun = client.responses.create(model=MODEL, input="hi", background=True)
    assert begun.status == "queued" and begun.background is True
    done = ended(client, begun.id)
    assert (done.status, done.output_text, done.id, done.background) == ("completed", "hello world", begun.id, True)
    assert client.responses.create(model=MODEL, input="more", previous_response_id=begun.id).output_text
    later = client.responses.create(model=MODEL, input="more", previous_response_id=begun.id, background=True)
    assert ended(client, later.id).previous_response_id == begun.id
    assert prompt(kept) == "user: hi\nassistant: hello world\nuser: more\nassistant: "
    with pytest.raises(openai.BadRequestError):
        client.responses.create(model=MODEL, input="hi", background=True, temperature=9)
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(client.responses.create(model=MODEL, input="hi").id)


def test_a_background_response_is_cancelled(tmp_path: Path) -> None:
    engine = FakeEngine()
    engine.token_s = 0.05
    with serving(fake_parts(engine, stored=stored(tmp_path))) as live, client_of(live) as client:
        begun = client.responses.create(model=MODEL, input="hi", background=True)
        wait_until(lambda: client.responses.retrieve(begun.id).status == "in_progress", "its begin")
        assert client.responses.cancel(begun.id).status == "cancelled"
        wait_until(lambda: engine.live == 0, "the engine to be free")
        assert client.responses.retrieve(begun.id).status == "cancelled"


def test_a_restart_fails_what_ran_and_keeps_the_rest(tmp_path: Path) -> None:
    engine = FakeEngine()
    with serving(fake_parts(engine, stored=stored(tmp_path))) as live, client_of(live) as client:
        kept = client.responses.create(model=MODEL, input="hi")
        engine.gate = asyncio.Event()
        lost = client.responses.create(model=MODEL, input="hi", background=True)
        wait_until(lambda: client.responses.retrieve(lost.id).status == "in_progress", "its begin")
        work = stored(tmp_path)  # what the next server finds, while this one still runs
        with serving(fake_parts(stored=work)) as again, client_of(again) as second:
            assert second.responses.retrieve(kept.id).output_text == "hello world"
            failed = second.responses.retrieve(lost.id)
            assert failed.status == "failed" and "started again" in failed.error.message  # type: ignore[union-attr]


def lines_of(*bodies: dict[str, Any], url: str = "/v1/chat/completions") -> bytes:
    lines = [{"custom_id": f"c{i}", "method": "POST", "url": url, "body": body} for i, body in enumerate(bodies)]
    return "\n".join(map(json.dumps, lines)).encode()


def chat(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}


def batch_ended(client: OpenAI, name: str) -> Any:
    open_ones = ("validating", "in_progress", "finalizing", "cancelling")
    wait_until(lambda: client.batches.retrieve(name).status not in open_ones, "the batch's end")
    return client.batches.retrieve(name)


def results(client: OpenAI, name: str | None) -> dict[str, Any]:
    assert name is not None
    found = [json.loads(line) for line in client.files.content(name).text.splitlines()]
    assert len({each["custom_id"] for each in found}) == len(found)
    return {each["custom_id"]: each for each in found}


def test_a_batch_runs_as_batch_work(client: OpenAI, kept: Live) -> None:
    data = lines_of(chat("a"), chat("b", temperature=9), chat("c", max_tokens=4))
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    assert file.bytes == len(data) and file.purpose == "batch" and file.filename == "in.jsonl"
    assert client.files.content(file.id).read() == data
    begun = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h", metadata={"a": "b"}
    )
    done = batch_ended(client, begun.id)
    assert done.status == "completed" and done.metadata == {"a": "b"}
    assert (done.request_counts.total, done.request_counts.completed, done.request_counts.failed) == (3, 2, 1)
    good, bad = results(client, done.output_file_id), results(client, done.error_file_id)
    assert set(good) == {"c0", "c2"} and set(bad) == {"c1"}
    assert good["c0"]["response"]["body"]["choices"][0]["message"]["content"] == "hello world"
    assert good["c2"]["response"]["body"]["choices"][0]["finish_reason"] == "length"
    assert bad["c1"]["response"]["status_code"] == 400 and "temperature" in json.dumps(bad["c1"])
    assert {each.priority for each in kept.parts.serving.engine.prompts} == {1}  # type: ignore[attr-defined]
    assert [each.id for each in client.batches.list()] == [begun.id]
    assert {each.purpose for each in client.files.list()} == {"batch", "batch_output"}
    client.files.delete(file.id)
    with pytest.raises(openai.NotFoundError):
        client.files.retrieve(file.id)


@pytest.mark.parametrize(
    ("url", "body", "path"),
    [
        ("/v1/completions", {"model": MODEL, "prompt": "a"}, ("choices", 0, "text")),
        ("/v1/responses", {"model": MODEL, "input": "a"}, ("output", 0, "content", 0, "text")),
    ],
)
def test_other_endpoints(client: OpenAI, kept: Live, url: Any, body: dict[str, Any], path: tuple[Any, ...]) -> None:
    file = client.files.create(file=("in.jsonl", lines_of(body, url=url)), purpose="batch")
    done = batch_ended(client, client.batches.create(input_file_id=file.id, endpoint=url, completion_window="24h").id)
    found: Any = results(client, done.output_file_id)["c0"]["response"]["body"]
    for step in path:
        found = found[step]
    assert found == "hello world" and kept.parts.serving.engine.prompts[-1].priority == 1  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"not json\n", "invalid_json_line"),
        (b"", "empty_file"),
        (lines_of(chat("a"), url="/v1/completions"), "mismatched_url"),
        (lines_of(chat("a", stream=True)), "invalid_request"),
        (lines_of(chat("a")) + b"\n" + lines_of(chat("a")), "duplicate_custom_id"),
        (lines_of(chat("a")).replace(b"POST", b"GET"), "invalid_method"),
        (lines_of(chat("a")).replace(b'"c0"', b'""'), "invalid_custom_id"),
    ],
)
def test_a_file_with_faults_runs_nothing(data: bytes, code: str, client: OpenAI, kept: Live) -> None:
    file = client.files.create(file=("in.jsonl", data), purpose="batch")
    begun = client.batches.create(
        input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
    )
    done = batch_ended(client, begun.id)
    assert done.status == "failed" and done.errors.data[0].code == code
    assert kept.parts.serving.engine.prompts == []  # type: ignore[attr-defined]


def test_what_is_refused_at_once(client: OpenAI, kept: Live) -> None:
    file = client.files.create(file=("in.jsonl", lines_of(chat("a"))), purpose="batch")
    good: dict[str, Any] = {"input_file_id": file.id, "endpoint": "/v1/completions", "completion_window": "24h"}
    for name, value in (("input_file_id", "file-none"), ("endpoint", "/metrics"), ("completion_window", "soon")):
        assert kept.post("/v1/batches", {**good, name: value}).status in (400, 404)
    with pytest.raises(openai.BadRequestError):
        client.files.create(file=("in.jsonl", b"x"), purpose="fine-tune")
    assert kept.post("/v1/files", b"x").status == 400
    for path in ("/v1/files/x", "/v1/files/..%2fx", "/v1/batches/x", "/v1/responses/x", "/v1/files/x/content"):
        assert kept.get(path).status == 404


def test_a_batch_is_cancelled_and_expires(tmp_path: Path) -> None:
    engine, now = FakeEngine(), [1_000_000.0]
    engine.token_s = 0.02
    work = StoredWork(tmp_path, Bounds(age_s=1e12), new_hex_id, lambda: now[0], width=1)
    with serving(fake_parts(engine, stored=work)) as live, client_of(live) as client:
        file = client.files.create(file=("in.jsonl", lines_of(*(chat(str(i)) for i in range(200)))), purpose="batch")

        def begun() -> Any:
            made = client.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            wait_until(lambda: client.batches.retrieve(made.id).request_counts.completed >= 2, "two lines")
            return made

        first = begun()
        client.batches.cancel(first.id)
        done = batch_ended(client, first.id)
        assert done.status == "cancelled"
        good, bad = results(client, done.output_file_id), results(client, done.error_file_id)
        assert len(good) >= 2 and len(good) + len(bad) == 200
        assert {each["error"]["code"] for each in bad.values()} == {"batch_cancelled"}
        with pytest.raises(openai.ConflictError):
            client.batches.cancel(first.id)
        second = begun()
        now[0] += 25 * 3600
        late = batch_ended(client, second.id)
        assert late.status == "expired" and late.request_counts.total == 200
        codes = {each["error"]["code"] for each in results(client, late.error_file_id).values()}
        assert codes == {"batch_expired"}


def test_a_batch_goes_on_after_a_kill_with_no_line_lost_or_twice(tmp_path: Path) -> None:
    """The folder is as a killed server leaves it: a journal ends in the middle of a line."""
    engine = FakeEngine()
    engine.token_s = 0.02
    with serving(fake_parts(engine, stored=stored(tmp_path))) as live, client_of(live) as client:
        file = client.files.create(file=("in.jsonl", lines_of(*(chat(str(i)) for i in range(40)))), purpose="batch")
        begun = client.batches.create(
            input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        wait_until(lambda: client.batches.retrieve(begun.id).request_counts.completed >= 5, "five lines")
    journal = tmp_path / "journals" / f"{begun.id}.jsonl"
    done = len(done_lines(journal.read_bytes())[0])
    assert 5 <= done < 40
    with journal.open("ab") as torn:
        torn.write(b'{"id": "batch_req_1", "custom_id": "c3')
    again = FakeEngine()
    with serving(fake_parts(again, stored=stored(tmp_path))) as live, client_of(live) as client:
        ready = batch_ended(client, begun.id)
        assert ready.status == "completed" and ready.request_counts.completed == 40, ready.errors
        assert set(results(client, ready.output_file_id)) == {f"c{i}" for i in range(40)}
        assert len(again.prompts) == 40 - done and not journal.exists()


def test_each_key_sees_its_own_alone(tmp_path: Path) -> None:
    with serving(fake_parts(stored=stored(tmp_path), api_key="my-key,your-key")) as live:
        with client_of(live, "my-key") as mine, client_of(live, "your-key") as other:
            response = mine.responses.create(model=MODEL, input="hi")
            file = mine.files.create(file=("in.jsonl", lines_of(chat("a"))), purpose="batch")
            begun = mine.batches.create(
                input_file_id=file.id, endpoint="/v1/chat/completions", completion_window="24h"
            )
            assert batch_ended(mine, begun.id).status == "completed"
            for ask in (
                lambda: other.responses.retrieve(response.id),
                lambda: other.files.content(file.id),
                lambda: other.batches.retrieve(begun.id),
                lambda: other.responses.delete(response.id),
            ):
                with pytest.raises(openai.NotFoundError):
                    ask()
            with pytest.raises(openai.BadRequestError):
                other.responses.create(model=MODEL, input="x", previous_response_id=response.id)
            assert not list(other.files.list()) and not list(other.batches.list())
    for path in tmp_path.rglob("*.json"):
        assert path.stat().st_mode & 0o077 == 0
    assert b"my-key" not in b"".join(str(path).encode() for path in tmp_path.rglob("*"))


def test_records_are_bounded(tmp_path: Path) -> None:
    now = [time.time()]
    old = Records(tmp_path / "a", ".json", Bounds(100, 3, 1000.0), lambda: now[0], forget_oldest=True)
    for place in range(5):
        old.put("", f"r{place}", b"x" * 20)
        time.sleep(0.01)
    assert old.names("") == ["r4", "r3", "r2"]
    old.put("", "big", b"x" * 70)
    assert old.names("") == ["big", "r4"]
    with pytest.raises(FullFolder):
        old.put("", "huge", b"x" * 101)
    firm = Records(tmp_path / "b", ".json", Bounds(100, 2, 1000.0), lambda: now[0], forget_oldest=False)
    firm.put("k", "one", b"1")
    firm.put("k", "two", b"2")
    with pytest.raises(FullFolder):
        firm.put("k", "three", b"3")
    firm.put("k", "two", b"22")  # in place of itself
    assert firm.get("k", "two") == b"22" and firm.clients() == ["k"]
    now[0] += 2000
    assert firm.get("k", "two") is None
    firm.put("k", "three", b"3")
    for name in ("../x", "a/b", "", ".x", "x" * 200):
        assert firm.get("k", name) is None and not firm.remove("k", name)


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    work = stored(tmp_path, Bounds(max_bytes=300, max_count=50))
    with serving(fake_parts(stored=work)) as live, client_of(live) as client:
        with pytest.raises(openai.APIStatusError) as refused:
            client.files.create(file=("in.jsonl", b"x" * 400), purpose="batch")
        assert refused.value.status_code == 507 and "--stored-bytes" in str(refused.value)
        with pytest.raises(openai.APIStatusError) as refused:
            client.responses.create(model=MODEL, input="hi" * 300)
        assert refused.value.status_code == 507


def test_lines_are_read_with_their_numbers() -> None:
    good = b'{"custom_id": "a", "method": "POST", "url": "/v1/score", "body": {}}'
    lines, errors = read_lines(b"\n" + good + b"\n\nx", "/v1/score")
    assert [each.number for each in lines] == [2] and [each.line for each in errors] == [4]


def test_lines_of_a_batch_run_model_by_model_and_wait_for_their_turn(tmp_path: Path) -> None:
    work, asked, free = stored(tmp_path / "work"), list[str](), dict[str, bool]()

    async def may_run(model: str) -> bool:
        asked.append(model)
        return free.get(model, True)

    with serving(fake_parts(stored=work)) as live, client_of(live) as client:
        work.batches.may_run = may_run
        free[MODEL] = False
        names = [MODEL, "nobody", MODEL, "nobody", MODEL]
        lines = lines_of(*({"model": name, "prompt": "x"} for name in names), url="/v1/completions")
        file = client.files.create(file=("in", lines), purpose="batch")
        batch = client.batches.create(input_file_id=file.id, endpoint="/v1/completions", completion_window="24h")
        wait_until(lambda: MODEL in asked, "its turn is asked for")
        assert client.batches.retrieve(batch.id).status == "in_progress"
        assert not live.parts.serving.engine.prompts  # type: ignore[attr-defined]
        free[MODEL] = True
        done = batch_ended(client, batch.id)
        assert (done.request_counts.completed, done.request_counts.failed) == (3, 2)
        changes = sum(one != other for one, other in zip(asked, asked[1:], strict=False))
        assert changes == 1, asked
