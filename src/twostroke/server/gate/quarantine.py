"""Handles requests that were running when the engine crashed. Such a suspect runs alone among suspects; a request that
was running at too many crashes is refused. This is the part in the worker; see process/crash_notes.py.

A request that was running at a crash may be the cause, or may have been in the same step by chance. If all these
requests ran together again, a second crash would tell no more than the first. So suspects run one at a time. At the
second crash only one of them ran, and that one is refused. A suspect request that completes is cleared.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from twostroke.server.errors import HttpProblem
from twostroke.server.gate.refusals import quarantined
from twostroke.server.process.crash_notes import MOST_RUNNING, PRINT_BYTES, CrashNotes, Record
from twostroke.types.output import Prompt

TURN_S = 60.0
"""The longest time, in seconds, that a suspect (a request that was running at a crash) waits for another suspect's end.
After this time both run together."""


def fingerprint(prompt: Prompt) -> bytes:
    """Returns a digest of the work: the prompt's tokens and all parameters. It does not depend on the client or the
    time."""
    digest = hashlib.blake2b(array("q", prompt.token_ids).tobytes(), digest_size=PRINT_BYTES)
    bias = sorted(prompt.params.logit_bias.items())
    digest.update(repr((len(prompt.token_ids), bias, replace(prompt.params, logit_bias={}))).encode())
    return digest.digest()


@dataclass(eq=False)
class Quarantine:
    """Admits requests that were running at a crash one at a time, or refuses them. Also records which requests each
    step runs. Satisfies engine.faults.witness.Witness.

    notes: the memory in which these records survive a crash; None for a server without a supervisor, which admits every
    request. clock: the supervisor's clock, which is time.monotonic.
    """

    notes: CrashNotes | None = None
    clock: Callable[[], float] = time.monotonic
    turn_s: float = TURN_S
    _prints: dict[str, bytes] = field(default_factory=dict)  # request id of each admitted request -> its fingerprint
    _last: list[str] = field(default_factory=list)
    _last_count: int = 0
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    _records: dict[bytes, Record] = field(init=False)

    def __post_init__(self) -> None:
        self._records = {} if self.notes is None else self.notes.records(self.clock())

    async def enter(self, prompts: Sequence[Prompt]) -> Stay:
        """Admits a call's prompts before they go to the engine. A prompt that was running when the engine crashed is a
        suspect, and waits while another suspect runs. Raises HttpProblem (422) when one of the prompts was running at
        too many crashes."""
        if self.notes is None:
            return Stay(self)
        known = {prompt.request_id or "": fingerprint(prompt) for prompt in prompts}
        suspects = [key for key in dict.fromkeys(known.values()) if self._suspect(key)]
        turn = await self._wait() if suspects else None
        self._prints |= known
        return Stay(self, tuple(known), tuple(suspects), turn)

    def _suspect(self, key: bytes) -> bool:
        record = self._records.get(key)
        if record is None:
            return False
        left_s = record.until_s - self.clock()
        if left_s <= 0:
            del self._records[key]
        elif record.refused:
            raise HttpProblem(quarantined(record.crashes, left_s))
        return left_s > 0

    async def _wait(self) -> asyncio.Lock | None:
        try:
            async with asyncio.timeout(self.turn_s):
                await self._turn.acquire()
        except TimeoutError:
            return None
        return self._turn

    def acquit(self, key: bytes) -> None:
        """Clears a suspect that ran to its end."""
        self._records.pop(key, None)
        if self.notes is not None:
            self.notes.clear(key)

    def begins(self, group_ids: Sequence[str]) -> None:
        """Records, before each step, which requests it computes. When these are the requests of the last step, as is
        usual, only a short note is written."""
        if self.notes is None:
            return
        if group_ids != self._last:
            self._last = list(group_ids)
            prints = [self._prints[name] for name in dict.fromkeys(group_ids) if name in self._prints]
            self._last_count = min(MOST_RUNNING, len(prints))
            self.notes.running(prints)
        else:
            self.notes.again(self._last_count)

    def ends(self) -> None:
        if self.notes is not None:
            self.notes.idle()


@dataclass(eq=False, slots=True)
class Stay:
    """A call that the quarantine has admitted. `leave` must be called when the call ends."""

    quarantine: Quarantine
    names: tuple[str, ...] = ()
    suspects: tuple[bytes, ...] = ()
    turn: asyncio.Lock | None = None
    _inside: bool = True

    def leave(self, answered: bool) -> None:
        """Called when the call ends, so that the next suspect (see the module) may run. answered: True when the whole
        call was computed without a crash; its prompts are then no longer suspects. A second call changes nothing."""
        if not self._inside:
            return
        self._inside = False
        for name in self.names:
            self.quarantine._prints.pop(name, None)
        for key in self.suspects if answered else ():
            self.quarantine.acquit(key)
        if self.turn is not None:
            self.turn.release()
