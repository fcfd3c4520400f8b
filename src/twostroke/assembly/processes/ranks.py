"""Runs one model in several processes: reads the settings and starts the group of ranks."""

from __future__ import annotations

import secrets
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, structs

from twostroke.assembly.caches import own_pools
from twostroke.assembly.optional import division as divisions
from twostroke.assembly.optional import frames, leader, link, processes, rank_sight
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    ClusterSettings,
    CpuSettings,
    DeviceSettings,
    DiskSettings,
    ImageSettings,
    ModelSettings,
    RankSettings,
    SpeculateSettings,
    StepSettings,
    TaskSettings,
)
from twostroke.assembly.settings.env import Machine, process_environment
from twostroke.assembly.settings.option import Field, Option
from twostroke.assembly.settings.resolver import Resolved, Resolver
from twostroke.backends.cpu import CpuOps
from twostroke.backends.cpu.context import MAX_THREADS
from twostroke.backends.cpu.exchange import Exchange, memory_bytes
from twostroke.cost.memory import KVPlan
from twostroke.engine.executor import Executor
from twostroke.engine.faults.alarm import Alarm
from twostroke.engine.faults.witness import Witness, WitnessedExecutor
from twostroke.engine.plans_in_flight import PlansInFlight
from twostroke.ops.program.model import Model
from twostroke.runner.forward import Forward
from twostroke.types.cache_pools import CachePools
from twostroke.types.errors import ConfigError
from twostroke.types.speculate import LOADED
from twostroke.weights.packed.fingerprint import content_of_folder

if TYPE_CHECKING:
    from twostroke.assembly.images.sight import SightPlan
    from twostroke.distributed.ranks.frames import RankBegin, RankSight
    from twostroke.distributed.ranks.leader import ImageSender, RankGroup
    from twostroke.distributed.ranks.line import RankLine
    from twostroke.distributed.ranks.processes import LocalMembers
    from twostroke.ops.passes.division import Division
    from twostroke.runner.images.image_encoder import ImageRows

TIMEOUT_S = 60.0

SENT: tuple[Field[Any], ...] = (
    *(ModelSettings.weights, CacheSettings.kv_format, StepSettings.context, StepSettings.max_step_tokens),
    *(StepSettings.max_sequences, TaskSettings.task, CpuSettings.cpu_level),
)
"""The settings that all ranks have in common."""
SHARED_HERE: tuple[Field[Any], ...] = (CpuSettings.threads, DiskSettings.cache, DiskSettings.cache_limit)
"""The settings that members on this machine share with their leader."""


class RankPlaces(Struct, frozen=True):
    """Tells where the processes of a division run. addresses: the addresses of members on other machines, by rank;
    empty for processes of this machine.

    timeout_s: the longest time in seconds that one rank waits for another inside a step. A rank that takes longer is
    considered hung. sight: how image rows come into the members' parts; None for a model that reads no images.
    """

    division: Division
    addresses: tuple[tuple[str, int], ...] = ()
    secret: str | None = None
    timeout_s: float = TIMEOUT_S
    sight: RankSight | None = None

    def share_of(self, machine: Machine) -> Machine:
        """Returns the share of the machine that one of the processes may use, where all of them run on this machine."""
        return machine if self.addresses else machine.share(self.division.count, self.division.leader)


def asked_division(resolver: Resolver) -> RankPlaces | None:
    """Returns the division that was asked for; None for one process. Settles the settings `tensor_parallel` and
    `pipeline_parallel`. Raises ConfigError."""
    tensor = resolver.pick(RankSettings.tensor_parallel, 1, "default: one process has every layer's matrices")
    stages = resolver.pick(RankSettings.pipeline_parallel, 1, "default: one process has all layers")
    listed = resolver.asked_value(RankSettings.rank_addresses) or ()
    division = None if tensor == stages == 1 else divisions.Division.asked(tensor, stages)
    count = 1 if division is None else division.count
    if listed and len(listed) != count - 1:
        raise ConfigError(
            f"--rank-addresses names {len(listed)} members, and {count} ranks need {count - 1} besides this process.",
            fix="Give one HOST:PORT for each, separated by commas, and --tensor-parallel or --pipeline-parallel.",
        )
    if division is None:
        if resolver.asked_value(RankSettings.rank_timeout) is not None:
            raise ConfigError(
                "--rank-timeout belongs to --tensor-parallel or --pipeline-parallel.", fix="Leave it out."
            )
        return None
    timeout_s = resolver.pick(RankSettings.rank_timeout, TIMEOUT_S, "default")
    _refuse_beside(resolver)
    secret = resolver.asked_value(ClusterSettings.cluster_secret)
    _require_secret(listed, secret)
    return RankPlaces(division, tuple(listed), secret, timeout_s)


def seeing_places(
    resolver: Resolver, places: RankPlaces | None, plan: SightPlan | None, spec: Model
) -> RankPlaces | None:
    """Returns `places`, which tells where the processes of a divided model run, together with how image rows enter the
    model. Members need this to build their parts. Records in the setting `images` which process encodes. spec: the
    model with an input for image rows."""
    if places is None or plan is None:
        return places
    reason, division = resolver.resolved().reason_of(ImageSettings.images), places.division
    resolver.put(ImageSettings.images, "on", f"{reason}; {division.noun} {division.leader} encodes them")
    return structs.replace(places, sight=rank_sight.sight_frame(plan.how, plan.encoder.sight.filler, spec.program))


def room_beside(places: RankPlaces | None, machine: Machine, encoder_bytes: int, more_bytes: int) -> Machine:
    """Returns the memory that one of several processes on this machine may use, where the leader also has an image
    encoder. more_bytes: how much larger the encoder makes the memory of the largest process.

    The machine is returned unchanged where members run on other machines. A limit on each process alone (`ulimit -v`)
    also holds for the process with the encoder.
    """
    if places is None or places.addresses:
        return machine
    count = places.division.count
    return machine.with_memory_of(count, (machine.free_together - encoder_bytes) // count + more_bytes)


def _require_secret(addresses: Sequence[tuple[str, int]], secret: str | None) -> None:
    far = [host for host, _ in addresses if host not in ("127.0.0.1", "localhost", "::1")]
    if far and secret is None:
        raise ConfigError(
            f"{far[0]} is another machine, and there is no secret.",
            why="Any program that reaches a rank's address could act as its leader.",
            fix="Set TWOSTROKE_CLUSTER_SECRET to the same long text for all ranks.",
        )


def _refuse_beside(resolver: Resolver) -> None:
    """Raises ConfigError that names the options which a group of ranks cannot honour."""
    way = (resolver.asked_value(SpeculateSettings.speculate) or "").partition(":")[0]
    by_model = [SpeculateSettings.speculate] if way in LOADED else []
    on_device = [DeviceSettings.device] if (resolver.asked_value(DeviceSettings.device) or "cpu") != "cpu" else []
    adapters: tuple[Option[Any], ...] = (AdapterSettings.adapter, AdapterSettings.adapter_folder)
    asked = [each for each in (*adapters, AdapterSettings.max_adapters) if resolver.asked_value(each) is not None]
    wrong: list[Option[Any]] = [*by_model, *on_device, *asked]
    if wrong:
        raise ConfigError(
            f"{wrong[0].flag} {resolver.asked_value(wrong[0])} is not possible over several ranks yet.",
            why="What it adds to a step is not divided among ranks.",
            fix="Leave it out, or serve the model with one process.",
        )


@dataclass(eq=False)
class StartedGroup:
    """A group of ranks whose members are loading. It owns their processes, the connections to them, and the exchange of
    partial results. spec: the whole model."""

    division: Division
    spec: Model
    group: RankGroup
    exchange: Exchange
    processes: LocalMembers | None

    def lead(self, forward: Forward, ops: CpuOps) -> Forward:
        """Joins the leader's program to the other ranks, waits until all members are ready, and returns the program.
        Raises TwostrokeError."""
        ops.join(self.exchange)
        self.group.meet_in(self.exchange)
        self.group.wait_ready()
        return leader.LeadingForward(forward, self.group, head_needs_members=self.division.way == divisions.TENSOR)

    def sender(self, images: ImageRows | None) -> ImageSender | None:
        """Returns the object that sends members the image rows of a plan; None for a model that reads no images. If a
        member is lost while an image is encoded, the encode is ended by an error."""
        if images is None:
            return None
        images.kept.before_piece = self.group.require_whole
        return leader.ImageSender(images, rank_sight.takers_of(self.division, self.spec))

    def close(self) -> None:
        """Ends the members and the exchange. Call it after the ops that use the exchange are closed. Closing twice is
        harmless."""
        self.group.close()
        self.exchange.end()
        if self.processes is not None:
            self.processes.close(processes.END_S if self.group.whole else processes.LOST_END_S)
        self.exchange.close()


def encoding_place(places: RankPlaces | None, place: RunPlace, closing: ExitStack) -> RunPlace:
    """Returns where images are encoded. The other ranks of this machine sleep while the leader encodes, so the encoder
    gets the threads of all. place: where this process computes its part of the model."""
    if places is None or places.addresses or places.division.plans > 1:
        return place
    threads = min(MAX_THREADS, place.ops.num_threads * places.division.count)
    made = RunPlace(CpuOps(place.ops.level, threads))
    closing.callback(made.close)
    return made


def plans_of(places: RankPlaces | None) -> int:
    """Returns how many plans are computed at a time: one for each stage of a pipeline."""
    return 1 if places is None else places.division.plans


def executor_of(
    runner: Executor, group: StartedGroup | None, witness: Witness | None, images: ImageRows | None
) -> tuple[Executor, PlansInFlight]:
    """Returns the executor of plans, and the queue of plans in flight. Without a group, the runner is the executor.
    With a group, a leader sends each plan to the members. A pipeline computes as many plans at a time as it has stages.

    witness: records which requests each step computes, so that a crash can be blamed on them. images: the encoded image
    rows, which a leader also sends to the members; None for a model that reads no images.
    """
    plain = runner
    flight = PlansInFlight()
    if group is not None:
        plain = leading = leader.LeadingExecutor(runner, group.group, group.sender(images))
        if group.division.plans > 1:
            flight = PlansInFlight(group.division.plans, leading.begin)
    return plain if witness is None else WitnessedExecutor(plain, witness), flight


def start_ranks(
    places: RankPlaces | None,
    folder: Path,
    spec: Model,
    resolved: Resolved,
    plan: KVPlan,
    machine: Machine,
    closing: ExitStack,
) -> StartedGroup | None:
    """Starts the group that was asked for, whose members load from now on; returns None for one process. `closing` ends
    the group."""
    if places is None:
        return None
    content = content_of_folder(folder)
    cpus = machine.places(places.division.count)
    started = start_group(places, str(folder), spec, resolved, own_pools(spec, plan), content, cpus)
    closing.callback(started.close)
    return started


def sound_with(sound: Callable[[], None], group: StartedGroup | None) -> Callable[[], None]:
    """Returns the check before each step. It raises EngineStopped where the weights are damaged (`sound` checks that),
    or where a member was lost."""
    if group is None:
        return sound

    def both() -> None:
        sound()
        group.group.require_whole()

    return both


def alarm_of(group: StartedGroup | None) -> Alarm:
    """Returns an alarm that rings when a member is lost."""
    alarm = Alarm()
    if group is not None:
        group.group.when_lost(alarm.ring)
    return alarm


def start_group(
    places: RankPlaces,
    path: str,
    spec: Model,
    resolved: Resolved,
    pools: CachePools,
    content: str,
    cpus: Sequence[tuple[int, ...]],
) -> StartedGroup:
    """Starts the members on this machine, or connects to those on other machines. Sends each member the facts from
    which it loads its part of the model.

    path: the model's path on this machine. content: the fingerprint of its weights. cpus: the hardware threads on which
    each process of this machine runs.
    """
    division = places.division
    width, level = division.exchange_width(spec), str(resolved.cpu.cpu_level)
    begin = frames.RankBegin(
        frames.RANKS_VERSION,
        division.way,
        0,
        division.count,
        {name: str(value) for name, value in resolved.values(*SENT).items()},
        pools.num_pages,
        pools.state_slots,
        pools.chunk_tokens,
        content,
        width,
        places.timeout_s,
        secrets.token_bytes(16),
        key_factors=resolved.cache.key_factors,
        sight=places.sight,
    )
    if places.addresses:
        return _reach(places, spec, begin, level)
    here = {name: str(value) for name, value in resolved.values(*SHARED_HERE).items() if value is not None}
    begin = structs.replace(begin, options={**begin.options, **here})
    ranks = division.members
    shared = processes.shared_memory(memory_bytes(level, division.count, width))
    started = processes.LocalMembers(shared, ranks[0])
    command = [sys.executable, "-P", "-m", "twostroke", "rank", path]
    lines = started.start([cpus[rank] for rank in ranks], command, process_environment())
    for rank, line in zip(ranks, lines, strict=True):
        line.send(structs.replace(begin, rank=rank))
    sizes = (division.leader, division.count, width, places.timeout_s)
    exchange = Exchange.in_memory(level, started.descriptor, *sizes)
    return StartedGroup(division, spec, _group(lines, ranks[0], started.describe), exchange, started)


def _group(lines: Sequence[RankLine], first: int, describe: Callable[[int], str]) -> RankGroup:
    group = leader.RankGroup(lines, first, describe)
    group.start()
    return group


def _reach(places: RankPlaces, spec: Model, begin: RankBegin, level: str) -> StartedGroup:
    """Connects to members that already listen on other addresses: first one connection to each for commands, then one
    to each for the exchange of partial results."""
    division = places.division
    ranks, secret = division.members, link.secret_key(places.secret)
    where = dict(zip(ranks, places.addresses, strict=True))
    peers = tuple(f"{where[rank][0]}:{where[rank][1]}" if rank in where else "" for rank in range(division.count))
    lines = [processes.connect(where[rank], secret, rank) for rank in ranks]
    for rank, line in zip(ranks, lines, strict=True):
        line.send(structs.replace(begin, rank=rank, peers=peers))
    sockets = {}
    for rank in ranks:
        joined = processes.connect(where[rank], secret, rank)
        joined.send(frames.RankJoin(begin.ticket, division.leader))
        sockets[rank] = joined.sock
    exchange = over_sockets(level, sockets, division.leader, division.count, places.timeout_s)
    return StartedGroup(division, spec, _group(lines, ranks[0], lambda rank: ""), exchange, None)


def over_sockets(level: str, sockets: Mapping[int, socket.socket], rank: int, ranks: int, limit_s: float) -> Exchange:
    """Returns an exchange of partial results over these connections. It keeps them open."""
    numbers = [sockets[each].fileno() if each in sockets else -1 for each in range(ranks)]
    return Exchange.over_sockets(level, numbers, rank, limit_s, sockets)
