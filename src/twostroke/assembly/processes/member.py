"""Builds a member: a process that computes one rank's part of a divided model. Builds this part, its memory, and the
exchange of partial results with the other ranks."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twostroke.assembly.caches import needs_of, step_memory
from twostroke.assembly.calibrated_keys import with_calibrated_keys
from twostroke.assembly.folders import compared_heads_folder, locate
from twostroke.assembly.images.rank_sight import seeing_model
from twostroke.assembly.processes.ranks import over_sockets
from twostroke.assembly.settings.config import ModelFacts, resolve_engine
from twostroke.assembly.settings.engine_settings import DiskSettings, ModelSettings
from twostroke.assembly.settings.env import read_machine
from twostroke.assembly.settings.resolver import Resolved, Resolver, collect
from twostroke.assembly.task import read_for_task
from twostroke.assembly.weights import checked, load, settler_of
from twostroke.backends.cpu import CpuOps, best_level, require_level
from twostroke.backends.cpu.exchange import Exchange
from twostroke.cost.memory import plan_kv
from twostroke.distributed.cluster.accepting import accepted
from twostroke.distributed.ranks.frames import RANKS_VERSION, Frame, RankBegin, RankFailed, RankJoin, RankReady
from twostroke.distributed.ranks.line import RankLine, RankLineLost
from twostroke.distributed.ranks.member import RankMember
from twostroke.distributed.ranks.processes import connect
from twostroke.ops.passes.division import Division
from twostroke.ops.passes.with_given_rows import taken_rows
from twostroke.ops.program.cache_groups import cache_groups
from twostroke.ops.program.model import Model
from twostroke.ops.step_memory import StepMemory
from twostroke.runner.images.step_images import ImageInputs
from twostroke.types.errors import BackendError, ConfigError
from twostroke.weights.key_factors import NAME
from twostroke.weights.packed.cache_choice import kept_folder
from twostroke.weights.packed.fingerprint import content_of_folder

ACCEPT_S, PAUSE_S = 60.0, 0.2
FIRST_FRAME_S = 600.0
"""The longest wait in seconds for a leader's first message. A leader sends it when it has reached all ranks, which may
be started one after the other."""
Report = Callable[[str], None]


@dataclass(eq=False)
class CalledRank:
    """A rank that its leader has called. line: the connection for commands. sockets: the connections over which ranks
    exchange partial results, by rank; empty for ranks that share memory.

    memory: the descriptor of the shared memory; None without it.
    """

    line: RankLine
    begin: RankBegin
    sockets: dict[int, socket.socket] = field(default_factory=dict)
    memory: int | None = None

    def exchange(self, level: str) -> Exchange:
        """The exchange of partial results between this rank and the others."""
        begin = self.begin
        if self.memory is not None:
            sizes = (begin.rank, begin.ranks, begin.width, begin.limit_s)
            return Exchange.in_memory(level, self.memory, *sizes)
        return over_sockets(level, self.sockets, begin.rank, begin.ranks, begin.limit_s)

    def close(self) -> None:
        """Closes all connections. Closing twice is harmless."""
        self.line.close()
        for sock in self.sockets.values():
            sock.close()


def inherited(line_descriptor: int, memory_descriptor: int) -> CalledRank:
    """Returns what this process needs as a rank: the connection to the leader that started it, and the shared memory.
    The arguments are the file descriptors of both, inherited from the leader. Raises RankLineLost."""
    line = RankLine(socket.socket(fileno=line_descriptor))
    return CalledRank(line, _begin(line), memory=memory_descriptor)


def called(listener: socket.socket, secret: bytes, report: Report) -> CalledRank:
    """Waits for a leader, and for connections from all ranks with lower numbers. A caller that does not prove that it
    knows the secret is turned away.

    Raises RankLineLost where a rank does not come, or where this rank cannot reach a rank with a higher number. In the
    second case it tells the leader first.
    """
    meeting: CalledRank | None = None
    joined: dict[int, tuple[RankJoin, RankLine]] = {}
    while meeting is None or not _complete(meeting, joined):
        listener.settimeout(None if meeting is None else ACCEPT_S)
        try:
            found = accepted(listener)
        except TimeoutError:
            raise RankLineLost("the other ranks did not come") from None
        if found is None:
            time.sleep(PAUSE_S)
            continue
        sock, host = found
        try:
            line = RankLine(sock)  # a connection that is gone already may refuse its options
            line.prove(secret, leads=False)
            frame = _first_frame(line)
        except (RankLineLost, OSError) as error:
            report(f"{host} was turned away: {error}")
            sock.close()
            continue
        if isinstance(frame, RankJoin):
            joined[frame.rank] = (frame, line)
        elif isinstance(frame, RankBegin) and meeting is None:
            meeting = CalledRank(line, frame)
            meeting.sockets = _call_higher(line, frame, secret)
    meeting.sockets |= {rank: line.sock for rank, (join, line) in joined.items() if join.ticket == meeting.begin.ticket}
    return meeting


def _complete(meeting: CalledRank, joined: Mapping[int, tuple[RankJoin, RankLine]]) -> bool:
    have = {rank for rank, (join, _) in joined.items() if join.ticket == meeting.begin.ticket} | set(meeting.sockets)
    return have >= set(range(meeting.begin.ranks)) - {meeting.begin.rank}


def _call_higher(leader: RankLine, begin: RankBegin, secret: bytes) -> dict[int, socket.socket]:
    """Returns connections to the members with a higher rank; the leader connects by itself. Raises RankLineLost."""
    sockets = {}
    try:
        for rank in range(begin.rank + 1, begin.ranks):
            if begin.peers[rank]:
                host, _, port = begin.peers[rank].rpartition(":")
                line = connect((host, int(port)), secret, rank)
                line.send(RankJoin(begin.ticket, begin.rank))
                sockets[rank] = line.sock
    except (BackendError, ValueError, LookupError) as error:
        leader.send(RankFailed(str(error), 1))
        raise RankLineLost(str(error)) from error
    return sockets


def _first_frame(line: RankLine) -> Frame:
    """Returns a caller's first message, which tells whether a leader or another rank calls. Raises RankLineLost,
    TimeoutError."""
    line.sock.settimeout(FIRST_FRAME_S)
    frame = line.receive()
    line.sock.settimeout(None)
    if isinstance(frame, RankBegin) and frame.version != RANKS_VERSION:
        raise RankLineLost("the leader is of another version")
    return frame


def _begin(line: RankLine) -> RankBegin:
    frame = _first_frame(line)
    if not isinstance(frame, RankBegin):
        raise RankLineLost(f"the leader begins with {type(frame).__name__}")
    return frame


def follow(model: str, options: Mapping[str, Any], meeting: CalledRank, report: Report) -> None:
    """Loads this rank's part, reports that it is ready, and computes until the leader ends. Raises TwostrokeError."""
    begin = meeting.begin
    resolver = Resolver(collect({**begin.options, **options}, {}))
    division = Division(begin.way, begin.ranks)
    path, spec, resolved = _resolve(model, resolver, begin)
    spec = seeing_model(spec, begin.sight)
    part = division.part(spec, begin.rank)
    groups = cache_groups(spec.program)
    pools = groups.pools(begin.pages, begin.state_slots, begin.chunk_tokens)
    machine = read_machine()
    needs = needs_of(spec, division.parts(spec), resolved)
    plan_kv(needs, machine.available_bytes, needs.caches.bytes_of(pools), machine.memory_source)
    with ExitStack() as closing:
        loaded = load(path, part, resolved, machine, None, report)
        check = checked(loaded, report, closing)
        exchange = meeting.exchange(resolved.cpu.cpu_level)
        closing.callback(exchange.close)
        ops = CpuOps(resolved.cpu.cpu_level, resolved.cpu.threads, resolved.cpu.cpus)
        closing.callback(ops.close)
        ops.join(exchange)
        settler = settler_of(loaded.weights, machine)
        closing.callback(settler.close)
        memory = step_memory(part.program, loaded.weights, pools, resolved, groups=part.groups)
        forward, inputs = ops.compile(part.program, memory), _inputs(begin, spec, part, memory)
        member = RankMember(meeting.line, memory, forward, exchange, check.require_sound, inputs)
        check.start()
        settler.start()
        meeting.line.send(RankReady(needs.weight_bytes))
        member.follow()


def _inputs(begin: RankBegin, spec: Model, part: Model, memory: StepMemory) -> ImageInputs | None:
    """Returns the object that writes image rows into this member's inputs; None where the model reads no images."""
    if begin.sight is None:
        return None
    return ImageInputs(memory, taken_rows(spec.program, part.program), begin.sight.filler)


def _resolve(model: str, resolver: Resolver, begin: RankBegin) -> tuple[Path, Model, Resolved]:
    machine = read_machine()
    kept = kept_folder(resolver.asked_value(DiskSettings.cache), machine.cache_folder)
    folder = locate(model, resolver.asked_value(ModelSettings.revision), kept=kept)
    spec, files = read_for_task(resolver, folder.path, compared_heads_folder(resolver, machine))
    resolve_engine(resolver, ModelFacts(folder.source, folder.revision, spec, files.max_tokens), machine, best_level())
    spec = with_calibrated_keys(spec, folder.path, resolver)
    resolved = resolver.resolved()
    require_level(resolved.cpu.cpu_level)
    if resolved.cpu.cpu_level != begin.options["cpu_level"]:
        raise ConfigError(
            f"This rank computes with {resolved.cpu.cpu_level} kernels, its leader with {begin.options['cpu_level']}.",
            why="Sums of floats may differ between them.",
            fix="Give all ranks the same --cpu-level.",
        )
    content = content_of_folder(folder.path)
    if content != begin.model:
        raise ConfigError(
            "This rank's model is another one than its leader's.",
            why=f"The fingerprints of config.json and weights are {content} and {begin.model}.",
            fix="Copy the same folder to all machines.",
        )
    if resolved.cache.key_factors != begin.key_factors:
        raise ConfigError(
            f"This rank's factors of keys ({resolved.cache.key_factors}) are not its leader's ({begin.key_factors}).",
            why="Each rank scales the keys of its own heads by the file next to its copy of the model.",
            fix=f"Copy the same folder, with {NAME}, to all machines.",
        )
    return folder.path, spec, resolved
