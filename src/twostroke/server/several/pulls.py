"""Models that a running server downloads because a user of its web page asks for one: first it checks whether the model
fits, then it downloads.

`twostroke pull` does both, in a process of its own. So downloads are resumed, checked and packed as by this command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from twostroke.server.errors import HttpProblem, Problem
from twostroke.types.errors import TwostrokeError

_PART = "[A-Za-z0-9][A-Za-z0-9._-]*"
NAME = re.compile(rf"((hf|huggingface)\.co/)?{_PART}(/{_PART})?(:{_PART})?")
MOST_LINE = 1 << 20
KEPT_WORDS = 2000
BUSY = Problem(409, "Another model is being fetched. Wait for its end, or stop it.", code="pull_in_progress")


class Pull(Struct):
    """One download of a model. stage: download or pack. done, total: the bytes so far, and of the whole. state:
    running, finished, failed, stopped. why: the reason of a failure."""

    name: str
    state: str = "running"
    stage: str = "download"
    done: int = 0
    total: int = 0
    why: str = ""


class PullTools(Struct, frozen=True):
    """How downloads are run. command: returns the command line of `twostroke pull` with these arguments. environment:
    the environment of that process. added: called with the name and the path of a model that was downloaded. ended:
    called whenever a download ends, whether it succeeded, failed or was stopped."""

    command: Callable[[Sequence[str]], Sequence[str]]
    environment: Mapping[str, str]
    added: Callable[[str, str], None]
    ended: Callable[[], None]


class Pulls:
    """The downloads of a server, on one event loop. One download runs at a time, because two would only share the
    network and the disk."""

    def __init__(self, tools: PullTools) -> None:
        self._tools = tools
        self.last: Pull | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def fit(self, name: str) -> dict[str, Any]:
        """Returns what would be downloaded, and whether it fits in memory. Only headers are read. Raises HttpProblem.
        """
        name = checked_name(name)
        process = await self._begun("--dry-run", "--anyway", "--json", "--", name)
        output, errors = await process.communicate()
        if process.returncode:
            raise HttpProblem(Problem(404, _words(errors) or f"{name} cannot be fetched.", code="not_found"))
        found: dict[str, Any] = json.loads(output)
        if not found.get("reference"):
            raise HttpProblem(Problem(404, f"{name} is no model of a hub.", code="not_found"))
        return {"model": name, **found}

    async def begin(self, name: str, *, anyway: bool) -> Pull:
        """Starts the download of a model; requests may ask for its name when it is complete. anyway: True downloads a
        model that does not fit, too. Raises HttpProblem (400, 409)."""
        if self.last is not None and self.last.state == "running":
            raise HttpProblem(BUSY)
        made = self.last = Pull(checked_name(name))
        self._process = None
        words = ("--json", "--progress-lines", *(["--anyway"] if anyway else []), "--", made.name)
        try:
            process = self._process = await self._begun(*words)
        except OSError as error:
            made.state, made.why = "failed", error.strerror or str(error)
            self._tools.ended()
            return made
        if made.state == "stopped":  # the pull was stopped while its process was being started
            process.terminate()
        self._task = asyncio.create_task(self._until_end(made, process))
        return made

    def stop(self) -> bool:
        """Ends the download. The downloaded part stays, and the next download continues from it. Returns True when a
        download was running."""
        process = self._process
        if self.last is None or self.last.state != "running":
            return False
        if process is not None and process.returncode is not None:
            return False
        self.last.state = "stopped"
        if process is not None:
            process.terminate()
        return True

    async def close(self) -> None:
        """Ends the running download, and waits for its end."""
        self.stop()
        if self._task is not None:
            await self._task

    async def _begun(self, *words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            *self._tools.command(words),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=dict(self._tools.environment),
            limit=MOST_LINE,
        )

    async def _until_end(self, pull: Pull, process: asyncio.subprocess.Process) -> None:
        try:
            await self._follow(pull, process)
        except (ValueError, TwostrokeError) as error:  # a line that is too long, or a model that the server cannot add
            pull.state, pull.why = "failed", str(error)
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        finally:
            self._tools.ended()

    async def _follow(self, pull: Pull, process: asyncio.subprocess.Process) -> None:
        output, words = await asyncio.gather(_all_of(process.stdout), self._listen(pull, process.stderr))
        code = await process.wait()
        if pull.state == "stopped":
            return
        if code:
            pull.state, pull.why = "failed", words or f"It ended with code {code}."
            return
        try:
            found = json.loads(output)
            self._tools.added(pull.name, str(found["path"]))
        except (ValueError, KeyError, TypeError) as error:
            pull.state, pull.why = "failed", f"Its answer cannot be read: {error}"
            return
        pull.state = "finished"

    async def _listen(self, pull: Pull, errors: asyncio.StreamReader | None) -> str:
        """Reads the lines that the download's process writes to stderr. Lines of progress set the fields of `pull`; the
        text of all other lines is returned, for error messages."""
        words = b""
        while errors is not None and (line := await errors.readline()):
            try:
                told = json.loads(line)
                pull.stage, pull.done, pull.total = str(told["stage"]), int(told["done"]), int(told["total"])
            except (ValueError, KeyError, TypeError):
                words = (words + line)[-KEPT_WORDS:]
        return _words(words)


def checked_name(name: str) -> str:
    """Returns the name of a model without the prefix hf.co/ or huggingface.co/: a short name such as llama3.2:1b, or
    owner/repository. Raises HttpProblem (400) for anything else, such as a path of this machine."""
    if len(name) > 200 or not NAME.fullmatch(name):
        text = "model must be a short name such as llama3.2:1b, or owner/repository with a quantization after a colon."
        raise HttpProblem(Problem(400, text, param="model"))
    return name.removeprefix("hf.co/").removeprefix("huggingface.co/")


async def _all_of(stream: asyncio.StreamReader | None) -> bytes:
    return b"" if stream is None else await stream.read()


def _words(errors: bytes) -> str:
    return errors.decode(errors="replace").strip()[-KEPT_WORDS:]
