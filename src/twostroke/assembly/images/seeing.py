"""Decides at each start whether a model reads images, so that the modules for images are imported only where it does.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from twostroke.assembly.optional_heads import sight
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.config import resolve_images
from twostroke.assembly.settings.engine_settings import ImageSettings
from twostroke.assembly.settings.env import Machine
from twostroke.assembly.settings.resolver import Resolved, Resolver
from twostroke.cost.shape import StepCost
from twostroke.engine.scheduler.scheduler import Scheduler
from twostroke.ops.program.model import Model
from twostroke.ops.program.program import Program
from twostroke.ops.step_memory import StepMemory
from twostroke.types.errors import ConfigError
from twostroke.weights.gguf.unfold import NAME_FILE
from twostroke.weights.json_file import read_object

if TYPE_CHECKING:
    from twostroke.assembly.images.sight import SightPlan
    from twostroke.images.eyes import Eyes
    from twostroke.runner.images.span_runner import ImageSteps

TOWER = "vision_config"


def plan_sight(resolver: Resolver, spec: Model, folder: Path, *, pieces: bool) -> tuple[Model, SightPlan | None]:
    """Calls `find_sight` where config.json describes an image encoder or images are asked for. Otherwise settles that
    no images are read."""
    config = read_object(folder / "config.json")
    asked = resolver.asked_value(ImageSettings.images) == "on" or resolver.asked_value(ImageSettings.mmproj) is not None
    if asked or TOWER in config or (folder / NAME_FILE).is_file():
        return sight.find_sight(resolver, spec, folder, config, pieces=pieces)
    resolver.pick(ImageSettings.mmproj, None, "none asked for")
    resolver.pick(ImageSettings.images, "off", "the model describes no encoder of images")
    resolve_images(resolver)
    return spec, None


def front_eyes(resolver: Resolver, spec: Model, folder: Path, fingerprint: str, closing: ExitStack) -> Eyes | None:
    """Returns the object that opens images at a front, the process that serves HTTP before the replicas; None where the
    replicas read no images. fingerprint: the fingerprint of the replicas' rules for images; empty where they read none.

    Raises ConfigError where this front would cut an image into other tiles than the replicas do.
    """
    if not fingerprint:
        return None
    plan = sight.sight_of_replicas(resolver, spec, folder, read_object(folder / "config.json"))
    eyes = None if plan is None else plan.eyes(resolver.resolved())
    if eyes is None or eyes.fingerprint != fingerprint:
        raise ConfigError(
            "The replicas read images, and this front would make other tiles of them.",
            why="A front opens images, and replicas encode them.",
            fix="Give the front the model folder, --mmproj and --image-tokens that its replicas have, and Pillow.",
        )
    closing.callback(eyes.close)
    return eyes


def build_sight(
    plan: SightPlan | None,
    resolved: Resolved,
    machine: Machine,
    place: RunPlace,
    memory: StepMemory,
    programs: tuple[Program, Program],
    closing: ExitStack,
) -> tuple[Eyes | None, ImageSteps | None]:
    """Returns the object that opens images, and the objects that encode them in the engine's steps. Both are None for a
    model that reads no images. programs: the program of the whole model, and that of the part which this process
    computes."""
    if plan is None:
        return None, None
    eyes = plan.eyes(resolved)
    closing.callback(eyes.close)
    return eyes, plan.steps(resolved, machine, place, memory, programs)


def tell_scheduler(scheduler: Scheduler, images: ImageSteps | None, steps: StepCost) -> None:
    """Gives the scheduler the costs by which it plans pieces of images. steps: the cost of steps of the model."""
    if images is not None:
        scheduler.images.cost = images.rows.kept.cost
        scheduler.spans.cost = None if images.spans is None else images.spans.cost(steps)
