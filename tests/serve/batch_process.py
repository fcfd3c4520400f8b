"""A process that runs one batch of stored work, with an app that answers at once. A test kills it.

    python -m tests.serve.batch_process FOLDER LINES CALLS [SAVED]

It stops answering after CALLS calls. With SAVED it stops when the output file is written and its batch does not mention
it yet. Then it is killed. At the end of the batch it prints its name and the most bytes that it had at a time.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tracemalloc
from pathlib import Path
from typing import Any

from twostroke.server.serving import new_hex_id
from twostroke.server.stored.batches import OPEN, AskedBatch
from twostroke.server.stored.files import FileFacts, SentFile, StoredFiles
from twostroke.server.stored.records import Bounds
from twostroke.server.stored.work import StoredWork

WIDTH = 4
URL = "/v1/chat/completions"


class Echo:
    """An app that answers with the content of the message. calls: a file with one byte for each call."""

    def __init__(self, calls: Path, most: int) -> None:
        self._calls, self._most, self._begun = calls, most, 0

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """See ASGI."""
        if self._begun == self._most:
            await asyncio.Event().wait()
        self._begun += 1
        with self._calls.open("ab") as file:
            file.write(b".")
        asked = json.loads((await receive())["body"])
        await asyncio.sleep(0)
        body = json.dumps({"choices": [{"message": {"content": asked["messages"][0]["content"]}}]}).encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


class Stopping(StoredFiles):
    """Waits for ever after a file is written."""

    saved: Path

    async def add(self, client: str, sent: SentFile, hex_id: str = "") -> FileFacts:
        """See StoredFiles."""
        facts = await super().add(client, sent, hex_id)
        if hex_id:
            self.saved.touch()
            await asyncio.Event().wait()
        return facts


def lines(count: int) -> bytes:
    """The input file."""
    made = (
        {"custom_id": f"c{n}", "method": "POST", "url": URL, "body": {"model": "m", "messages": [
            {"role": "user", "content": f"question {n}"}]}}
        for n in range(count)
    )  # fmt: skip
    return b"".join(json.dumps(each).encode() + b"\n" for each in made)


async def main(folder: Path, count: int, most: int, stops_at_end: bool) -> None:
    """Begins the batch or goes on with it, and waits for its end."""
    work = StoredWork(folder, Bounds(), new_hex_id, width=WIDTH)
    work.attach(Echo(folder / "calls", most), lambda: False)
    if stops_at_end:
        work.files.__class__ = Stopping
        work.files.saved = folder / "saved"  # type: ignore[attr-defined]
    known = await work.batches.listed("")
    if not known:
        file = await work.files.add("", SentFile("in.jsonl", "batch", lines(count)))
        known = [await work.batches.create("", AskedBatch(file.id, URL))]
    else:
        await work.resume()
    while (batch := await work.batches.get("", known[0].id)).status in OPEN:
        await asyncio.sleep(0.01)
    await work.batches.idle()
    print(json.dumps({"name": batch.id, "status": batch.status, "peak": tracemalloc.get_traced_memory()[1]}))


if __name__ == "__main__":
    tracemalloc.start(1)
    words = sys.argv[1:]
    asyncio.run(main(Path(words[0]), int(words[1]), int(words[2]), len(words) > 3))
