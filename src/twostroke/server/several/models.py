"""All models of a server: finds the model of a name, and carries out the decisions of `Loading`.

Everything happens on one event loop, except slow work: reading a model's folder, and ending a process.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from twostroke.assembly.settings.env import read_machine
from twostroke.distributed.cluster.model_process import ModelProcess, ProcessEnd, ProcessReport
from twostroke.distributed.fleet.loading import Action, Loading, LoadingRules, ModelState, Refuse, Start
from twostroke.engine.scheduler.gauges import Gauges
from twostroke.server.api.model_list import plain_name
from twostroke.server.built import NamesHeard
from twostroke.server.parts import ServerParts
from twostroke.server.several.group import Launch, ModelGroup
from twostroke.server.several.news import ModelStatus, News, whole_share
from twostroke.server.several.pulls import Pulls
from twostroke.server.several.source import ModelSource
from twostroke.types.errors import ModelUnavailable, OutOfMemory, TwostrokeError
from twostroke.types.not_loaded import not_loaded
from twostroke.types.pooling import Task

log = logging.getLogger("twostroke.server")
LOOK_S, RETRY_S = 0.1, 30.0
HANGS_S = 30.0
"""The seconds after which a process that was asked to end is killed, unless it still has streams. Writing its pages to
the disk may take 15 s of them."""
KEPT_FREE_SHARE = 0.1
"""The share of memory that is left for everything but models. It is a share of the memory that was available before any
model was loaded."""


class Models:
    """The models of a server that loads and unloads several models as requests need them. It finds the model of a name,
    starts and ends the models' processes, and knows their states.

    shared: the parts that all models have in common; set by the code that builds the server. clock: returns the time in
    seconds.
    """

    shared: ServerParts

    def __init__(
        self,
        sources: Sequence[ModelSource],
        launch: Launch,
        rules: LoadingRules | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.groups = {source.name: ModelGroup(source, launch, self.look_soon) for source in sources}
        self.loading = Loading(room_now(), rules)
        self.clock, self._launch = clock, launch
        self.pulls: Pulls | None = None
        self.news = News()
        self._names_heard: NamesHeard | None = None
        self._building: dict[str, asyncio.Lock] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._soon = False
        self._changed = asyncio.Event()

    def find(self, name: str) -> ModelGroup | None:
        """Returns the model that a name means; None when there is none. The name may be written as Ollama's clients do,
        and may be that of an adapter."""
        for group in self.groups.values():
            if name in group.source.names or name in _adapters(group):
                return group
        wanted = plain_name(name)
        for group in self.groups.values():
            if any(plain_name(each) == wanted for each in (*group.source.names, *_adapters(group))):
                return group
        return None

    def add(self, source: ModelSource) -> None:
        """Adds a model that was downloaded while the server runs. Does nothing where the server has this model already,
        under any name."""
        own = tuple(name for name in source.names if self.find(name) is None)
        if own and self.find(source.reference) is None:
            added = msgspec.structs.replace(source, names=own, shown=own[:1])
            self.groups[added.name] = ModelGroup(added, self._launch, self.look_soon)
            self._launch.say(f"{added.name} is here now")
            if self._loop is not None and self._names_heard is not None:
                self._loop.run_in_executor(None, self._names_heard, self.all_names())

    def all_names(self) -> list[str]:
        """Returns every name of every model, without adapters."""
        return [name for group in self.groups.values() for name in group.source.names]

    def follow_names(self, heard: NamesHeard) -> None:
        """Makes this object call `heard`, in another thread, with the names of all models whenever a model was added.
        """
        self._names_heard = heard

    def names(self) -> list[str]:
        """Returns the names that requests may ask for: one name of each model, then its adapters."""
        return [name for group in self.groups.values() for name in (group.name, *_adapters(group))]

    def first(self, task: Task | None = None) -> ModelGroup:
        """Returns the model for a request that names none: the first model of this task, or the first of all."""
        groups = list(self.groups.values())
        built = [each for each in groups if each.parts is not None]
        found = [each for each in built if each.parts is not None and each.parts.serving.task is task]
        return (found or built or groups)[0]

    def state(self, group: ModelGroup) -> ModelState:
        """Returns the state of the model's process."""
        state = self.loading[group.name].state if group.name in self.loading else ModelState.ABSENT
        return ModelState.READY if state is ModelState.LOADING and group.answers else state

    def why(self, group: ModelGroup) -> str:
        """Returns what is wrong with a model, in words; "" when nothing is."""
        return group.problem or (self.loading[group.name].why if group.name in self.loading else "")

    def build(self, group: ModelGroup, shared: ServerParts | None = None) -> ServerParts:
        """Makes the ServerParts of a model, before the server runs. Raises TwostrokeError."""
        parts = group.build(shared)
        self._know(group)
        return parts

    def _know(self, group: ModelGroup) -> None:
        source = group.source
        self.loading.add(group.name, group.plan().need_bytes, source.keep_s, pinned=source.pinned)

    async def built(self, group: ModelGroup) -> None:
        """Makes the model's ServerParts and its app if there are none. Raises ModelUnavailable with what is wrong with
        the model."""
        if group.app is not None:
            return
        async with self._building.setdefault(group.name, asyncio.Lock()):
            if group.app is not None:
                return
            try:
                if group.parts is None:
                    await asyncio.to_thread(group.build, self.shared)
                self._know(group)
                await group.open()
                group.problem = ""
            except TwostrokeError as error:
                group.problem = str(error)
                self.note()
                self._launch.say(f"{group.name} cannot be served: {error}")
                code = "insufficient_memory" if isinstance(error, OutOfMemory) else "model_failed"
                why = f"The model {group.name!r} cannot be served: {error}"
                raise ModelUnavailable(why, code=code, retry_after_s=RETRY_S) from None

    # The methods from here on load and unload models.

    async def start(self) -> None:
        """Begins on this event loop, and loads the models that should be loaded from the start.

        Returns when each of them is ready or has failed. Raises ModelUnavailable when all of them have failed.
        """
        self._loop = asyncio.get_running_loop()
        ready = [group for group in self.groups.values() if group.parts is not None]
        for group in ready:
            await self.built(group)
        first = [group for group in ready if group.source.at_start or group.source.pinned]
        for group in first:
            self.loading.want(group.name, self.clock(), gentle=True)
        self._look()
        while any(self.loading[group.name].waits for group in first):
            self._changed.clear()
            await self._changed.wait()
        failed = [group for group in first if self.loading[group.name].failed_code]
        if first and len(failed) == len(first):
            model = self.loading[failed[0].name]
            raise ModelUnavailable(f"No model could be loaded. {model.why}", code=model.failed_code)

    async def load(self, group: ModelGroup) -> None:
        """Loads a model and waits until it is ready. Raises ModelUnavailable."""
        await self.built(group)
        self.loading.want(group.name, self.clock())
        self.look_soon()
        model = self.loading[group.name]
        while model.waits:
            self._changed.clear()
            await self._changed.wait()
        if model.state is not ModelState.READY:
            why, code = model.why or "It left again before it was used.", model.failed_code or "model_failed"
            raise ModelUnavailable(f"The model {group.name!r} is not loaded. {why}", code=code)

    async def batch_may_run(self, name: str) -> bool:
        """Returns True when a line of a batch may use this model now. Returns False while loading the model would
        unload another model that was used lately."""
        group = self.find(name) if name else self.first()
        if group is None:
            return True  # the answer tells that there is no such model
        try:
            await self.built(group)
        except ModelUnavailable:
            return True  # the answer gives the reason
        return self.loading.is_quiet(group.name, self.clock())

    def unload(self, group: ModelGroup) -> None:
        """Unloads a model as soon as no request runs in it."""
        if group.name in self.loading:
            self.loading.unload(group.name, self.clock())
            self.look_soon()

    def keep(self, group: ModelGroup, keep_s: float) -> None:
        """Sets how many seconds a model stays loaded after its last request."""
        if group.name in self.loading:
            self._observe(group, self.clock())
            self.loading.keep(group.name, keep_s)
            self.look_soon()

    def look_soon(self) -> None:
        """Called when something has happened, such as a new request: makes the event loop check soon which models must
        be loaded or unloaded. Several calls before that check cause one check."""
        if self._loop is not None and not self._soon:
            self._soon = True
            self._loop.call_soon(self._look_now)

    def _look_now(self) -> None:
        self._soon = False
        self._take_turn()

    def _look(self) -> None:
        self._take_turn()
        if self._loop is not None:
            self._timer = self._loop.call_later(LOOK_S, self._look)

    def _observe(self, group: ModelGroup, now: float) -> None:
        self.loading.observe(group.name, group.num_requests, now)

    def _take_turn(self) -> None:
        now = self.clock()
        for model in self.loading:
            group = self.groups[model.name]
            self._observe(group, now)
            if model.state is ModelState.LOADING and group.answers:
                self.loading.ready(model.name, now)
                self._launch.say(f"{model.name} is loaded")
                self._changed.set()
        for action in self.loading.tick(now):
            self._carry_out(action)
        self.note()

    def note(self) -> None:
        """Adds events for the changes since the last call, for clients that follow the models' states."""
        last = None if self.pulls is None else self.pulls.last
        statuses = {group.name: self._status(group) for group in self.groups.values()}
        self.news.note(statuses, None if last is None else msgspec.structs.replace(last))

    def _status(self, group: ModelGroup) -> ModelStatus:
        state = ModelState.FAILED if group.problem else self.state(group)
        share = whole_share(group.loaded_share) if state is ModelState.LOADING else 0.0
        return ModelStatus(state, share, self.why(group) if state is ModelState.FAILED else "")

    def _carry_out(self, action: Action) -> None:
        group = self.groups[action.name]
        if isinstance(action, Start):
            self._launch.say(f"{group.name} is being loaded")
            group.start(partial(self._heard_in_thread, group))
        elif isinstance(action, Refuse):
            self._launch.say(f"{group.name} is not loaded: {action.why}")
            group.stepper.refuse_waiting(not_loaded(action.code, action.why), action.retry_after_s)
        else:
            self._launch.say(f"{group.name} leaves")
            group.drain()
            self._end_soon(group, group.process)
        self._changed.set()

    def _end_soon(self, group: ModelGroup, process: ModelProcess | None) -> None:
        if self._loop is not None and process is not None:
            self._loop.call_later(HANGS_S, self._end_hanging, group, process)

    def _end_hanging(self, group: ModelGroup, process: ModelProcess) -> None:
        """Kills a process that was asked to end and has nothing to do, so that it does not keep its memory."""
        if group.process is not process:
            return
        if any(member.streams for member in group.stepper.fleet.members):
            self._end_soon(group, process)
        else:
            self._launch.say(f"{group.name} does not end when it is asked to, and is killed")
            process.kill()

    def _heard_in_thread(self, group: ModelGroup, news: ProcessReport | ProcessEnd) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._heard, group, news)

    def _heard(self, group: ModelGroup, news: ProcessReport | ProcessEnd) -> None:
        if isinstance(news, ProcessReport):
            group.loaded_share = news.done / news.total if news.total else group.loaded_share
            if news.listens:
                group.listens()
            return
        group.ended()
        self._observe(group, self.clock())
        self.loading.ended(group.name, self.clock(), news.code, news.why)
        self.note()  # the model may be loaded again before the next check
        if not self.loading.used_bytes:
            self.loading.room_bytes = room_now()
        self._launch.say(f"{group.name} has ended with code {news.code}")
        self._changed.set()
        self.look_soon()

    async def stop(self) -> None:
        """Stops loading and downloading models, and ends every stream that is open."""
        if self._timer is not None:
            self._timer.cancel()
        self._loop = None
        if self.pulls is not None:
            await self.pulls.close()
        for group in self.groups.values():
            if group.app is not None and group.parts is not None:
                await group.parts.serving.engine.stop()

    def close(self) -> None:
        """Ends the processes of all models, and everything else that still runs for them."""
        self._loop = None
        for group in self.groups.values():
            group.drain()
        for group in self.groups.values():
            group.close()

    @property
    def alive(self) -> bool:
        """True while requests are taken."""
        return self._loop is not None

    def gauges(self) -> Gauges:
        """Returns the sums of the gauges over all models."""
        found = [group.stepper.gauges() for group in self.groups.values()]
        names = ("running", "waiting", "pages_free", "pages_used", "pages_cached", "waste_tokens")
        more = ("preemptions_total", "prefix_query_tokens", "prefix_hit_tokens")
        return Gauges(**{name: sum(getattr(each, name) for each in found) for name in (*names, *more)})


def room_now() -> int:
    """Returns the bytes of memory that models may have together, while none is loaded."""
    return int(read_machine().available_bytes * (1 - KEPT_FREE_SHARE))


def _adapters(group: ModelGroup) -> tuple[str, ...]:
    return () if group.parts is None else group.parts.serving.adapters.names()
