"""What `twostroke serve` does by itself on a machine of several memory nodes: a rank or a replica on each of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twostroke.types.errors import ConfigError, TwostrokeError

if TYPE_CHECKING:
    from twostroke.assembly.settings.env import Machine
    from twostroke.lab.planner.memory_nodes import NodeChoice
    from twostroke.lab.planner.model_config import PlannedModel

DIVIDED = ("tensor_parallel", "pipeline_parallel", "rank_addresses")
"""Who gives one of these has chosen."""
GUESSED_BY_MODELS = ("draft", "medusa", "eagle")


def chosen_here(model: str, options: Mapping[str, Any], *, alone: bool = False) -> NodeChoice | None:
    """The choice for this machine; None where it has one memory node, where the user has chosen, and where there is no
    plan. alone: this process cannot have replicas. Raises ConfigError for options that cannot be read."""
    from twostroke.assembly.settings.env import asked_by_environment, read_machine
    from twostroke.assembly.settings.resolver import collect

    machine = read_machine()
    if len(machine.placing.nodes) < 2:
        return None
    asked = {name: each.value for name, each in collect(options, asked_by_environment()).items()}
    if any(name in asked for name in DIVIDED) or asked.get("device", "cpu") != "cpu":
        return None
    try:
        return choice_for(machine, model, asked, alone=alone)
    except TwostrokeError as error:
        click.echo(f"memory nodes: one process, because no plan could be made: {error.what}", err=True)
        return None


def choice_for(machine: Machine, model: str, asked: Mapping[str, Any], *, alone: bool = False) -> NodeChoice | None:
    """The choice for a machine of several nodes. asked: values of options."""
    from twostroke.assembly.settings.config import USUAL_SEQUENCES
    from twostroke.lab.planner.ask import make_ask
    from twostroke.lab.planner.doctor.machine import ThisMachine
    from twostroke.lab.planner.expect import room_for
    from twostroke.lab.planner.memory_nodes import choose_way, nodes_of
    from twostroke.lab.planner.model_config import read_model
    from twostroke.lab.planner.target import guessed_target, here_target
    from twostroke.types.spec.hardware_guess import guessed_cpu

    here = ThisMachine.read(asked.get("threads"), machine)
    nodes = nodes_of(machine, here.level, asked.get("threads"))
    if nodes is None:
        return None
    found, kept, streams = read_model(model, asked.get("revision")), here.kept(), asked.get("max_sequences")
    ask = make_ask(found.spec, asked.get("weights"), asked.get("kv_format"), concurrency=streams or USUAL_SEQUENCES)
    if kept is None:
        guess = guessed_cpu(here.patient.threads, here.level)
        target = guessed_target(guess, machine.available_bytes, ConfigError("It was never measured."))
    else:
        target = here_target(kept, machine.available_bytes)
    refused = refused_ways(found, asked, alone=alone)
    return choose_way(found.spec, ask, room_for(found.spec, ask, target), nodes, target.link, refused)


def refused_ways(found: PlannedModel, asked: Mapping[str, Any], *, alone: bool) -> dict[str, str]:
    """Ways that this model or these options exclude, with the reason."""
    from twostroke.lab.planner.images import find_sight
    from twostroke.lab.planner.memory_nodes import RANKS, REPLICAS

    refused = {}
    adapters = next((name for name in ("adapter", "adapter_folder", "max_adapters") if name in asked), None)
    if adapters is not None:
        refused[RANKS] = f"ranks take no --{adapters.replace('_', '-')}"
    elif str(asked.get("speculate", "")).partition(":")[0] in GUESSED_BY_MODELS:
        refused[RANKS] = "ranks guess with no model"
    if alone:
        refused[REPLICAS] = "a supervised server has none"
    elif later := next((name for name in ("adapter_folder", "max_adapters") if name in asked), None):
        refused[REPLICAS] = f"replicas take no --{later.replace('_', '-')}"
    if find_sight(found.source, found.spec, found.folder or Path(), wanted=False) is not None:
        refused |= {RANKS: "it reads images", REPLICAS: "it reads images"}
    return refused


def announce(choice: NodeChoice) -> None:
    """Print what was chosen, and why, on standard error."""
    click.echo(f"memory nodes: {choice.flag}, {choice.reason}; --one-process keeps one process", err=True)
