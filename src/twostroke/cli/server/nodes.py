"""Chooses ranks or replicas for `twostroke serve` on a machine of several memory nodes: one on each node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.assembly.settings.engine_settings import (
    AdapterSettings,
    CacheSettings,
    CpuSettings,
    DeviceSettings,
    ModelSettings,
    RankSettings,
    SpeculateSettings,
    StepSettings,
)
from twostroke.types.errors import ConfigError, TwostrokeError
from twostroke.types.speculate import LOADED

if TYPE_CHECKING:
    from twostroke.assembly.settings.env import Machine
    from twostroke.assembly.settings.resolver import Resolver
    from twostroke.lab.planner.memory_nodes import NodeChoice
    from twostroke.lab.planner.model_config import PlannedModel

DIVIDED = (RankSettings.tensor_parallel, RankSettings.pipeline_parallel, RankSettings.rank_addresses)
"""The options by which a user chooses the division. Where one is given, nothing is chosen automatically."""
LATER_ADAPTERS = (AdapterSettings.adapter_folder, AdapterSettings.max_adapters)


def chosen_here(model: str, options: Mapping[str, Any], *, alone: bool = False) -> NodeChoice | None:
    """Returns how a model is best divided among the memory nodes (NUMA) of this machine: one process, ranks or
    replicas. Returns None where the machine has one node, where the user has chosen, and where no prediction can be
    made.

    alone: whether this process cannot have replicas. Raises ConfigError for options that cannot be read.
    """
    from twostroke.assembly.settings.env import asked_by_environment, read_machine
    from twostroke.assembly.settings.resolver import Resolver, collect

    machine = read_machine()
    if len(machine.placing.nodes) < 2:
        return None
    asked = Resolver(collect(options, asked_by_environment()))
    if asked.first_asked(*DIVIDED) or (asked.asked_value(DeviceSettings.device) or "cpu") != "cpu":
        return None
    try:
        return choice_for(machine, model, asked, alone=alone)
    except TwostrokeError as error:
        click.echo(f"memory nodes: one process, because no plan could be made: {error.what}", err=True)
        return None


def choice_for(machine: Machine, model: str, asked: Resolver, *, alone: bool = False) -> NodeChoice | None:
    """Returns how a model is best divided among the memory nodes of this machine, by predicted throughput; None where
    there are fewer threads than nodes. alone: whether this process cannot have replicas."""
    from twostroke.assembly.settings.config import USUAL_SEQUENCES
    from twostroke.lab.planner.ask import make_ask
    from twostroke.lab.planner.doctor.machine import ThisMachine
    from twostroke.lab.planner.expect import room_for
    from twostroke.lab.planner.memory_nodes import choose_way, nodes_of
    from twostroke.lab.planner.model_config import read_model
    from twostroke.lab.planner.target import guessed_target, here_target
    from twostroke.types.spec.hardware_guess import guessed_cpu

    threads, streams = asked.asked_value(CpuSettings.threads), asked.asked_value(StepSettings.max_sequences)
    weights, kv_format = asked.asked_value(ModelSettings.weights), asked.asked_value(CacheSettings.kv_format)
    here = ThisMachine.read(threads, machine)
    nodes = nodes_of(machine, here.level, threads)
    if nodes is None:
        return None
    found, kept = read_model(model, asked.asked_value(ModelSettings.revision)), here.kept()
    ask = make_ask(found.spec, weights, kv_format, concurrency=streams or USUAL_SEQUENCES)
    if kept is None:
        guess = guessed_cpu(here.patient.threads, here.level)
        target = guessed_target(guess, machine.available_bytes, ConfigError("It was never measured."))
    else:
        target = here_target(kept, machine.available_bytes)
    refused = refused_ways(found, asked, alone=alone)
    return choose_way(found.spec, ask, room_for(found.spec, ask, target), nodes, target.link, refused)


def refused_ways(found: PlannedModel, asked: Resolver, *, alone: bool) -> dict[str, str]:
    """Returns the divisions (RANKS, REPLICAS) that this model or these options exclude, each with the reason. alone:
    whether this process cannot have replicas."""
    from twostroke.assembly.images.encoder_format import USUAL, EncoderFormat
    from twostroke.lab.planner.images import find_sight
    from twostroke.lab.planner.memory_nodes import RANKS, REPLICAS

    refused = {}
    adapters = asked.first_asked(AdapterSettings.adapter, *LATER_ADAPTERS)
    if adapters is not None:
        refused[RANKS] = f"ranks take no {adapters.flag}"
    elif (asked.asked_value(SpeculateSettings.speculate) or "").partition(":")[0] in LOADED:
        refused[RANKS] = "ranks guess with no model"
    if alone:
        refused[REPLICAS] = "a supervised server has none"
    elif later := asked.first_asked(*LATER_ADAPTERS):
        refused[REPLICAS] = f"replicas take no {later.flag}"
    if find_sight(found.source, found.spec, found.folder or Path(), EncoderFormat.next_to(USUAL)) is not None:
        refused |= {RANKS: "one rank alone would encode its images", REPLICAS: "it reads images"}
    return refused


def announce(choice: NodeChoice) -> None:
    """Prints on standard error how the model is divided among the memory nodes, and why."""
    click.echo(f"memory nodes: {choice.flag}, {choice.reason}; --one-process keeps one process", err=True)
