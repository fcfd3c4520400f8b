"""Decides which of several models are loaded: events and times in, actions out. The module is pure.

    add(name, needs)       observe(name, requests, now)      want, unload, keep, ready, ended (each with `now`)
    tick(now) -> actions   Start, Stop, Refuse, in the order in which they are to be carried out

Its laws are in docs/adr/0039-a-model-is-a-replica-group.md, and tests/fleet/test_loading.py checks them over 10,000
simulated schedules.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from msgspec import Struct

from twostroke.distributed.fleet.leaving import choose_leaving

FINAL_CODES = frozenset({2, 3, 5})
"""Exit codes of a process that would end in the same way again: wrong options, model, kernels."""
MEMORY_CODE = 4


class ModelState(enum.StrEnum):
    """The state of a model. ABSENT: it has no process. LOADING: its process is not ready. READY: it takes requests.
    DRAINING: it takes no more requests and ends when nothing runs in it. FAILED: it could not be loaded, and is not
    tried before a given time."""

    ABSENT = "unloaded"
    LOADING = "loading"
    READY = "loaded"
    DRAINING = "draining"
    FAILED = "failed"


class LoadingRules(Struct, frozen=True):
    """The rules of loading. most_loaded: the most models that are loaded at a time. most_load_s: the longest load; a
    process that is still loading after these seconds hangs, and is ended.

    load_wait_s: the longest wait of a request for its model. max_wait_s: the longest time that a model in use keeps
    memory that another model waits for. turn_loads: a model that took x seconds to load stays loaded for at least
    `turn_loads` times x seconds, at most max_wait_s, before another model may take its memory.

    tries: the number of failed loads after which a model counts as failed. failed_s: how long it then counts as failed.
    delay_s, most_delay_s: the first and the longest wait before a process is started again; the wait doubles each time.
    steady_s: the wait is delay_s again after a process ran longer than this.
    """

    most_loaded: float = math.inf
    most_load_s: float = 3600.0
    load_wait_s: float = 300.0
    max_wait_s: float = 30.0
    turn_loads: float = 3.0
    tries: int = 3
    failed_s: float = 30.0
    delay_s: float = 0.25
    most_delay_s: float = 30.0
    steady_s: float = 60.0


class Start(Struct, frozen=True):
    """Action: start a process for this model."""

    name: str


class Stop(Struct, frozen=True):
    """Action: give the model's process no more requests, and end the process when nothing runs in it."""

    name: str


class Refuse(Struct, frozen=True):
    """Action: end all requests that wait for this model with an error. code, why: the error. retry_after_s: the seconds
    after which a client may try again; None where the same request would fail again."""

    name: str
    code: str
    why: str
    retry_after_s: float | None = None


Action = Start | Stop | Refuse


@dataclass(eq=False, slots=True)
class LoadedModel:
    """One model, loaded or not. need_bytes: the memory of its process. keep_s: how long it stays loaded after its last
    request. usual_keep_s: the value to which keep_s returns when the model is unloaded. pinned: whether it stays loaded
    for good. load_s: seconds of a load, predicted or measured.

    requests: the number of requests that run or wait. waits_since_s: the time at which requests began to wait for it.
    idle_since_s: the end of its last request. ready_since_s: the end of its last load. begun_s: the beginning of its
    present load.

    wished: whether a load was asked for without a request. gentle: whether this load may unload no other model.
    unloading: whether it is unloaded when its last request ends. failed_code, why: the error of the last failed load.
    retry_at_s: the time before which no process is started. tries: the number of loads that failed one after the other.
    delay_s: the wait before the next start after an unexpected end.
    """

    name: str
    need_bytes: int
    keep_s: float
    usual_keep_s: float
    pinned: bool = False
    load_s: float = 1.0
    state: ModelState = ModelState.ABSENT
    requests: int = 0
    waits_since_s: float | None = None
    idle_since_s: float = 0.0
    ready_since_s: float = 0.0
    begun_s: float = 0.0
    wished: bool = False
    gentle: bool = False
    unloading: bool = False
    failed_code: str = ""
    why: str = ""
    retry_at_s: float = -math.inf
    tries: int = 0
    delay_s: float = 0.0

    @property
    def has_process(self) -> bool:
        """True while the model has a process, which holds memory."""
        return self.state in (ModelState.LOADING, ModelState.READY, ModelState.DRAINING)

    @property
    def waits(self) -> bool:
        """True while the model is to be loaded but is not ready: requests wait for it, or the load was asked for
        without a request."""
        return (self.requests > 0 or self.wished) and self.state is not ModelState.READY

    @property
    def leaves_at_s(self) -> float:
        """The time at which the model may be unloaded; infinite while it is used or pinned."""
        if self.state is not ModelState.READY or self.requests or (self.pinned and not self.unloading):
            return math.inf
        return self.idle_since_s if self.unloading else self.idle_since_s + self.keep_s


class Loading:
    """Decides which models are loaded and unloaded, and when. room_bytes: the memory for the processes of all models
    together; it may change. Only one thread at a time may use it."""

    def __init__(self, room_bytes: int, rules: LoadingRules | None = None) -> None:
        self.room_bytes = room_bytes
        self.rules = rules or LoadingRules()
        self._models: dict[str, LoadedModel] = {}

    def __getitem__(self, name: str) -> LoadedModel:
        return self._models[name]

    def __contains__(self, name: str) -> bool:
        return name in self._models

    def __iter__(self) -> Iterator[LoadedModel]:
        return iter(self._models.values())

    @property
    def used_bytes(self) -> int:
        """The memory that all processes need, including those that are ending."""
        return sum(model.need_bytes for model in self if model.has_process)

    def add(
        self, name: str, need_bytes: int, keep_s: float = math.inf, *, pinned: bool = False, load_s: float = 1.0
    ) -> None:
        """Adds one model, which is not loaded yet. A name that was added before keeps its settings."""
        self._models.setdefault(name, LoadedModel(name, need_bytes, keep_s, keep_s, pinned, load_s))

    def observe(self, name: str, requests: int, now: float) -> None:
        """Takes the number of requests that run or wait for a model. The idle time begins when this number falls to 0.
        """
        model = self._models[name]
        if model.requests and not requests:
            model.idle_since_s, model.waits_since_s = now, None
        model.requests = requests
        self._mark_waiting(model, now)

    def want(self, name: str, now: float, *, gentle: bool = False) -> None:
        """Asks for the load of a model without a request for it. The load then counts as if a request waited for it.
        gentle: whether this load may unload no other model."""
        model = self._models[name]
        if model.state is ModelState.READY:
            model.idle_since_s, model.unloading = max(now, model.idle_since_s), False
            return
        if model.state is ModelState.FAILED:
            self._forgive(model)
        model.wished, model.gentle = True, gentle
        self._mark_waiting(model, now)

    def unload(self, name: str, now: float) -> None:
        """Lets a model be unloaded when its last request ends. A later request loads it again."""
        model = self._models[name]
        model.wished = False
        if model.has_process:
            model.unloading = True
        elif not model.requests:
            model.waits_since_s = None

    def keep(self, name: str, keep_s: float) -> None:
        """Sets how long a model stays loaded after its last request; 0 unloads it when that request ends. When it is
        unloaded, the time returns to its usual value."""
        model = self._models[name]
        model.keep_s, model.unloading = keep_s, False

    def ready(self, name: str, now: float) -> None:
        """Notes that the model's process takes requests."""
        model = self._models[name]
        if model.state is not ModelState.LOADING:
            return
        model.state, model.ready_since_s, model.load_s = ModelState.READY, now, max(1e-3, now - model.begun_s)
        model.idle_since_s, model.waits_since_s, model.tries = now, None, 0
        model.wished = model.gentle = False
        model.failed_code = model.why = ""

    def ended(self, name: str, now: float, code: int = 0, why: str = "") -> None:
        """Notes that the model's process has ended and its memory is free. code: its exit code. why: its last error, in
        words."""
        model = self._models[name]
        before, model.state = model.state, ModelState.ABSENT
        model.unloading = False
        if before is ModelState.DRAINING:
            model.keep_s, model.retry_at_s = model.usual_keep_s, -math.inf
        else:
            steady = before is ModelState.READY and now - model.ready_since_s > self.rules.steady_s
            doubled = min(self.rules.most_delay_s, 2 * model.delay_s)
            model.delay_s = self.rules.delay_s if steady or not model.delay_s else doubled
            model.retry_at_s = now + model.delay_s
            model.wished = model.wished or model.pinned
        if before is ModelState.LOADING:
            self._load_failed(model, code, why, now)
        self._mark_waiting(model, now)

    def tick(self, now: float) -> list[Action]:
        """Returns the actions that are due now: models to load, models to unload, and models whose waiting requests are
        refused."""
        actions: list[Action] = [*self._refusals(now), *self._times_over(now)]
        return [*actions, *self._starts(now)]

    def _fits_now(self, name: str) -> bool:
        """Returns True when the model is loaded already, or can be loaded without unloading another model."""
        model = self._models[name]
        return model.has_process or (self._lacking(model) <= 0 and self._places_lacking() <= 0)

    def is_quiet(self, name: str, now: float) -> bool:
        """Returns whether work that is not urgent may ask for a load of this model. No other model may wait for memory.
        The load must fit next to the loaded models, or these must all be unused for max_wait_s seconds."""
        others = [each for each in self if each.name != name]
        if any(each.waits and not each.has_process for each in others):
            return False
        loaded = [each for each in others if each.has_process and not each.pinned]
        unused = (not each.requests and now - each.idle_since_s >= self.rules.max_wait_s for each in loaded)
        return self._fits_now(name) or all(unused)

    # The methods from here on make the decisions.

    def _mark_waiting(self, model: LoadedModel, now: float) -> None:
        if not model.waits:
            model.waits_since_s = None
        elif model.waits_since_s is None:
            model.waits_since_s = now

    def _forgive(self, model: LoadedModel) -> None:
        model.state, model.tries, model.retry_at_s, model.delay_s = ModelState.ABSENT, 0, -math.inf, 0.0

    def _load_failed(self, model: LoadedModel, code: int, why: str, now: float) -> None:
        model.tries += 1
        final = code in FINAL_CODES or code == MEMORY_CODE
        if not final and model.tries < self.rules.tries:
            return
        model.failed_code = "insufficient_memory" if code == MEMORY_CODE else "model_failed"
        model.why = why or f"Its process has ended with code {code}, {model.tries} times one after the other."
        model.state, model.retry_at_s = ModelState.FAILED, now + self.rules.failed_s

    def _refusals(self, now: float) -> Iterator[Refuse]:
        for model in self:
            if model.state is ModelState.FAILED and now >= model.retry_at_s:
                self._forgive(model)
            if not model.waits:
                continue
            if model.has_process:
                yield from self._waited_too_long(model, now)
            elif model.state is ModelState.FAILED:
                yield self._refused(model, model.failed_code, model.why, model.retry_at_s - now)
            elif (why := self._never_fits(model)) is not None:
                model.failed_code, model.why = "insufficient_memory", why
                yield self._refused(model, model.failed_code, why, None)
            else:
                yield from self._waited_too_long(model, now)

    def _waited_too_long(self, model: LoadedModel, now: float) -> Iterator[Refuse]:
        """Yields one refusal, for all requests of the model, where they have waited too long for its load."""
        if model.waits_since_s is not None and now - model.waits_since_s > self.rules.load_wait_s:
            busy = "its load goes on" if model.state is ModelState.LOADING else "other models are in use"
            why = f"It was not there within {self.rules.load_wait_s:g} s: {busy}."
            yield self._refused(model, "model_not_loaded", why, self.rules.load_wait_s)

    def _refused(self, model: LoadedModel, code: str, why: str, retry_after_s: float | None) -> Refuse:
        """Returns the action that refuses all requests of a model. The model's number of requests becomes 0 at once,
        because the caller ends these requests when it carries out the action."""
        model.requests, model.wished, model.waits_since_s = 0, False, None
        return Refuse(model.name, code, why, retry_after_s)

    def _never_fits(self, model: LoadedModel) -> str | None:
        pinned = [each for each in self if each.pinned and each is not model]
        held = sum(each.need_bytes for each in pinned)
        if model.need_bytes + held > self.room_bytes:
            stay = f", and models that always stay need {held / 1e9:.2f} GB" if held else ""
            return (
                f"It needs {model.need_bytes / 1e9:.2f} GB{stay}; "
                f"there are {self.room_bytes / 1e9:.2f} GB for all models together."
            )
        if len(pinned) + 1 > self.rules.most_loaded:
            return f"At most {self.rules.most_loaded:g} models are loaded at a time, and {len(pinned)} always stay."
        return None

    def _times_over(self, now: float) -> Iterator[Stop]:
        for model in self:
            hangs = model.state is ModelState.LOADING and now - model.begun_s > self.rules.most_load_s
            if hangs or now >= model.leaves_at_s:
                yield self._stopped(model)

    def _stopped(self, model: LoadedModel) -> Stop:
        model.state = ModelState.DRAINING
        return Stop(model.name)

    def _starts(self, now: float) -> Iterator[Action]:
        """Yields the next load, and the models to unload for it; only one model is loaded at a time. The model that has
        waited longest comes first. A later one may be loaded before it where that fits without unloading anything,
        until the first has waited for max_wait_s."""
        if any(model.state is ModelState.LOADING for model in self):
            return
        waiting = [model for model in self if model.waits and not model.has_process and now >= model.retry_at_s]
        waiting.sort(key=lambda model: (model.waits_since_s or 0.0, model.name))
        for place, model in enumerate(waiting):
            if self._lacking(model) <= 0 and self._places_lacking() <= 0:
                model.state, model.begun_s = ModelState.LOADING, now
                yield Start(model.name)
                return
            if place == 0 and model.gentle and not model.requests:
                why = "There is no room for it next to those that are loaded; a request for it makes room."
                yield self._refused(model, "deferred", why, None)
                continue
            if place == 0:
                yield from map(self._stopped, self._leaving(model, now))
            if now - (model.waits_since_s or 0.0) > self.rules.max_wait_s:
                return

    def _lacking(self, model: LoadedModel) -> int:
        return self.used_bytes + model.need_bytes - self.room_bytes

    def _places_lacking(self) -> float:
        return sum(each.has_process for each in self) + 1 - self.rules.most_loaded

    def _leaving(self, wanted: LoadedModel, now: float) -> Sequence[LoadedModel]:
        """Returns the models to unload, so that a waiting model fits; none while the models that are ending already
        free enough."""
        going = [each for each in self if each.state is ModelState.DRAINING]
        lacking = self._lacking(wanted) - sum(each.need_bytes for each in going)
        places = self._places_lacking() - len(going)
        if lacking <= 0 and places <= 0:
            return ()
        stays = [each for each in self if each.state is ModelState.READY and not each.pinned]
        overdue = now - (wanted.waits_since_s or now) > self.rules.max_wait_s
        idle = [each for each in stays if not each.requests and (overdue or self._had_turn(each, now))]
        chosen = choose_leaving(idle, lacking, places)
        if chosen is None and overdue:  # running requests finish; new requests wait for the next load
            chosen = choose_leaving([each for each in stays if self._had_turn(each, now)], lacking, places)
        return chosen or ()

    def _had_turn(self, model: LoadedModel, now: float) -> bool:
        turn_s = min(self.rules.max_wait_s, self.rules.turn_loads * model.load_s)
        return now - model.ready_since_s >= turn_s
