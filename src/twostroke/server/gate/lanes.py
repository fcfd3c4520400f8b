"""Thread pools that read requests (JSON, template, tokenizer): one pool (a lane) for each range of body lengths, so
that short texts never wait for long ones.

Requests that ask for structured output have a pool of their own. A schema of 700 bytes, or the grammar of a tool, can
take a hundred times as long to read as a question of the same length.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from twostroke.assembly.machine.heap import Trimmer

P = ParamSpec("P")
T = TypeVar("T")

LANES: tuple[tuple[int, int], ...] = ((8 * 1024, 4), (64 * 1024, 3), (1024 * 1024, 1))
"""The thread pools by length of body: (longest body in bytes, threads). A body of 8 KiB is read in about 3 ms, one of
64 KiB in 20 ms, one of 1 MiB in less than a second. Most questions are short; most large schemas are long bodies."""
FORM_BYTES, FORM_THREADS = 1024 * 1024, 2
"""The longest body in the thread pool for structured output, and the number of its threads. Longer bodies with a schema
are read in the pool for their length."""
_FORM = re.compile(
    rb'"(?:response_format|json_schema|structured_outputs|guided_[a-z]+|grammar|ebnf|regex|output_config|output_format'
    rb'|custom)"|"strict"\s*:\s*true|"tool_choice"\s*:\s*(?:"required"|"any"|\{)|"format"\s*:\s*\{|\\u00[4-7]'
)
"""The fields by which a request asks for a grammar. An escaped ASCII letter (\\u0041) may hide the name of such a
field. Ordinary programs write none, so a body with one is handled as if it had such a field."""
HEAVY_BYTES = 64 * 1024
"""Reading a body longer than this takes memory that is given back to the system afterwards."""


class Lanes:
    """Thread pools that read request bodies, chosen by the length of a body; bodies longer than all bounds share one
    more thread. A pool starts its threads at its first body.

    The waiting bodies are bounded by the budget of bodies (body_budget.py): a body counts until it is read. trimmer:
    gives back the memory that was used to read a long body.
    """

    def __init__(self, lanes: tuple[tuple[int, int], ...] = LANES, trimmer: Trimmer | None = None) -> None:
        self.trimmer = trimmer or Trimmer()
        self._lanes = [(longest, _threads(f"read-{longest}", count)) for longest, count in lanes]
        self._longest = _threads("read-longest", 1)
        self._forms = _threads("read-forms", FORM_THREADS)

    async def read(self, body: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of `work` on the body of a request, done in a thread. A body that asks for structured
        output uses the pool for such requests; others use the pool for their length. Raises what `work` raises."""
        if len(body) <= FORM_BYTES and _FORM.search(body):
            return await self._done(self._forms, len(body), lambda: work(*args, **kwargs))
        return await self.run(len(body), work, *args, **kwargs)

    async def run(self, size_bytes: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns the result of `work`, done in the thread pool for bodies of this size. Raises what `work` raises."""
        pool = next((pool for longest, pool in self._lanes if size_bytes <= longest), self._longest)
        return await self._done(pool, size_bytes, lambda: work(*args, **kwargs))

    async def _done(self, pool: ThreadPoolExecutor, size_bytes: int, work: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        finally:
            if size_bytes > HEAVY_BYTES:
                self.trimmer.heavy_work_ended()


def _threads(name: str, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, thread_name_prefix=name)
