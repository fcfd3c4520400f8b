"""One model of several: the parts that read its requests, and its process while it is loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from starlette.types import ASGIApp

from twostroke import __version__
from twostroke.assembly.early.planned import ModelTexts, PlannedProcess, plan_model, read_texts
from twostroke.assembly.seeds import SEEDS
from twostroke.assembly.settings.config import resolve_overload, resolve_server
from twostroke.assembly.settings.resolver import Resolved
from twostroke.distributed.cluster.front import FrontStepper
from twostroke.distributed.cluster.link import secret_key
from twostroke.distributed.cluster.model_process import Heard, ModelProcess
from twostroke.distributed.fleet.fixed_adapters import FixedAdapters
from twostroke.engine.answers.reader import StreamReader
from twostroke.engine.loop_engine import LoopEngine
from twostroke.engine.resources import Resources
from twostroke.engine.session import Session
from twostroke.server.adapters import ServedAdapters
from twostroke.server.app import open_app
from twostroke.server.build import access_of, admission_of, resolved_fingerprint, settled, slots_in
from twostroke.server.card import card_of
from twostroke.server.gate.fleet_forecast import FleetForecast
from twostroke.server.gate.forecast import Listeners
from twostroke.server.live.about import planned_about
from twostroke.server.live.view import EngineView
from twostroke.server.parts import ServerParts, Telemetry
from twostroke.server.serving import Serving
from twostroke.server.several.source import ModelSource
from twostroke.server.slots.fleet_disk import FleetDisk
from twostroke.server.telemetry.metrics import ServerMetrics
from twostroke.types.output import Prompt
from twostroke.types.spec.formats import PAGE_TOKENS

if TYPE_CHECKING:
    from twostroke.images.eyes import Eyes

Command = Callable[[ModelSource, Mapping[str, Any], int, int], Sequence[str]]
"""A function that returns the command line of a model's process. Its arguments are the model, the options of the
process, and the descriptors of the listening socket and of the pipe for reports."""


class Launch(Struct, frozen=True):
    """How the processes of models are started. secret: the server and a model's process use it to authenticate to each
    other. say: writes a line to the log."""

    command: Command
    environment: Mapping[str, str]
    secret: str
    say: Callable[[str], None]


class GroupEngine(LoopEngine):
    """The engine of one model of several. wanted: called when a request has come in, so that the model is loaded."""

    def __init__(self, stepper: FrontStepper, wanted: Callable[[], None]) -> None:
        super().__init__(stepper)
        self._wanted = wanted

    def open(self, prompt: Prompt, wake: Callable[[], None]) -> StreamReader:
        reader = super().open(prompt, wake)
        self._wanted()
        return reader


class ModelGroup:
    """One model of several. `plan` and `build` make the objects that read its requests, once; `start` and `drain` start
    and end its process, any number of times.

    planned: None before `plan`. parts: None before `build`. app: None before `open`. problem: why the parts could not
    be made, the last time that this was tried. loaded_share: the share of the model's bytes that is loaded. wanted:
    called for each request that comes in.
    """

    def __init__(self, source: ModelSource, launch: Launch, wanted: Callable[[], None]) -> None:
        self.source, self._launch, self._wanted = source, launch, wanted
        self.planned: PlannedProcess | None = None
        self.parts: ServerParts | None = None
        self.app: ASGIApp | None = None
        self.process: ModelProcess | None = None
        self.loaded_share = 0.0
        self.problem = ""
        self._addresses: list[tuple[str, int]] = []
        self._texts: ModelTexts | None = None
        self._secret = launch.secret
        self.stepper = FrontStepper(
            self._addresses, PAGE_TOKENS, secret_key(launch.secret), time.perf_counter, self._report, self._say
        )
        self.forecast = FleetForecast(lambda: self.stepper.fleet.members)
        self._disk = FleetDisk(lambda: self.stepper.fleet.members)

    @property
    def name(self) -> str:
        """The name for lists and messages."""
        return self.source.name

    def _say(self, text: str) -> None:
        self._launch.say(f"{self.name}: {text}")

    def _report(self, error: BaseException) -> None:
        self._say(f"fault: {type(error).__name__}: {error}")

    def plan(self) -> PlannedProcess:
        """Returns what the model's process will need. Raises TwostrokeError."""
        if self.planned is None:
            names = ",".join(self.source.names)
            self.planned = plan_model(self.source.reference, {**self.source.options, "served_name": names})
        return self.planned

    def build(self, shared: ServerParts | None) -> ServerParts:
        """Makes the ServerParts of this model: what the app needs to read its requests and write its answers. They
        contain the parts of `shared`, which all models of the server have in common. It takes a while. Raises
        TwostrokeError."""
        found = self.plan().found
        resolver = found.resolver
        resolve_server(resolver, found.name)
        resolve_overload(resolver, found.kv_plan.tokens)
        resolved, texts = resolver.resolved(), read_texts(found)
        metrics, fleet = ServerMetrics(), self.stepper.fleet
        self.stepper.session = Session(
            fleet,
            texts.tokenizer,
            texts.limits,
            seeds=SEEDS,
            observer=Listeners(metrics, self.forecast),
            ledger=fleet.ledger,
            resources=Resources(texts.grammars, self._adapters()),
        )
        self._texts = texts
        own = self._own_parts(resolved, texts, metrics)
        self.parts = own if shared is None else with_shared(own, shared)
        return self.parts

    def _adapters(self) -> FixedAdapters | None:
        """Returns the LoRA adapters that the model's process loads, in the order of the settings; None where the
        process has no places for adapters."""
        plan = self.plan().found.adapters
        return None if plan is None else FixedAdapters([name for name, _ in plan.asked])

    def _own_parts(self, resolved: Resolved, texts: ModelTexts, metrics: ServerMetrics) -> ServerParts:
        found, stepper, weights = self.plan().found, self.stepper, resolved.model.weights
        shown = planned_about(resolved, __version__)
        serving = Serving(
            engine=GroupEngine(stepper, self._wanted),
            tokenizer=texts.tokenizer,
            template=texts.template,
            context_tokens=resolved.steps.context,
            defaults={**texts.generation.sampling, **self.source.defaults},
            fingerprint=resolved_fingerprint(resolved),
            card=card_of(found.folder, found.name, weights, found.spec, resolved.memory.weight_bytes),
            adapters=ServedAdapters(self._adapters()),
            embedder=texts.made.embedder,
            reranker=texts.made.reranker,
            eyes=self._eyes(resolved, texts),
            loading=self.progress,
            stays=False,
            slots=slots_in(Path(resolved.disk.cache), self._disk) if resolved.disk.kv_disk else None,
            view=EngineView(stepper.fleet.ledger, stepper.pages, stepper.clock, shown, stepper.replicas),
        )
        return ServerParts(
            settled(serving, resolved, found.folder.path),
            admission_of(resolved, self.forecast.wait_s),
            access_of(resolved),
            Telemetry(metrics, explain=stepper.explain),
        )

    def _eyes(self, resolved: Resolved, texts: ModelTexts) -> Eyes | None:
        """Returns the object that opens images in this process; the model's process encodes them. Returns None for a
        model that reads no images."""
        plan = self.plan().found.sight
        if plan is None:
            return None
        eyes = plan.eyes(resolved)
        texts.closing.callback(eyes.close)
        return eyes

    async def open(self) -> None:
        """Begins to take requests, on this event loop. The model's parts must have been made."""
        if self.parts is not None:
            await self.parts.serving.engine.start()
            self.app = open_app(self.parts)

    def start(self, heard: Heard) -> None:
        """Starts the model's process. heard: a function that is called in another thread for each report of the
        process, and once at its end."""
        options, source, command = self.plan().options, self.source, self._launch.command
        self.loaded_share = 0.0
        self.stepper.forget_facts()
        self.stepper.fleet.holds = False
        self.process = ModelProcess(
            self.name,
            lambda listening, report: command(source, options, listening, report),
            self._launch.environment,
            heard,
        )

    def listens(self) -> None:
        """Called when the model's process accepts connections: connects to it soon."""
        if self.process is not None:
            self._addresses[:] = [self.process.address]
            self.stepper.look_soon()

    def drain(self) -> None:
        """Gives the model's process no more requests, and lets it end."""
        self.stepper.fleet.holds = True
        if self.process is not None:
            self.process.drain()

    def ended(self) -> None:
        """Called when the model's process has ended: forgets the process and its address."""
        self.process = None
        self._addresses.clear()
        self.stepper.fleet.holds = False

    @property
    def answers(self) -> bool:
        """True when the model's process is connected and takes requests."""
        own = None if self.process is None else self.process.address
        return any((member.where.host, member.where.port) == own for member in self.stepper.fleet.members)

    @property
    def num_requests(self) -> int:
        """The number of requests that run or wait."""
        return self.stepper.fleet.num_streams

    def progress(self) -> str:
        """The progress of the load in words, for waiting clients; empty when the model takes requests."""
        return "" if self.answers else f"loading {self.name} {100 * self.loaded_share:.0f}%"

    def close(self) -> None:
        """Ends the model's process, the connections to it, and the threads that read requests for this model."""
        if self.process is not None:
            self.process.close()
        self.stepper.close()
        if self._texts is not None:
            self._texts.closing.close()


def with_shared(own: ServerParts, shared: ServerParts) -> ServerParts:
    """Returns one model's parts, with the parts in `shared` that all models have in common: the limits on requests, the
    access rules, the stored data and the listeners."""
    return ServerParts(
        replace(own.serving, stored=shared.serving.stored, chats=shared.serving.chats),
        shared.admission,
        shared.access,
        replace(own.telemetry, listeners=shared.telemetry.listeners),
    )
