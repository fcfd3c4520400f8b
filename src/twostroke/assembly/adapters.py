"""Plans LoRA adapters before anything is loaded, and builds the shelf, the object that holds the loaded adapters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from twostroke.assembly.guessing.guesses import DraftModel, GuessingModel
from twostroke.assembly.optional import bank, lora_folder, shelf, with_adapters
from twostroke.assembly.settings.engine_settings import AdapterSettings
from twostroke.assembly.settings.resolver import Resolver
from twostroke.cost.memory import MemoryNeeds
from twostroke.engine.speculate.guess_limiter import GUESS_ROWS
from twostroke.ops.device_memory import DeviceMemory
from twostroke.ops.passes.patterns import PATTERNS
from twostroke.ops.program.fuse import fuse
from twostroke.ops.program.model import Model
from twostroke.ops.program.place import place
from twostroke.ops.program.program import Program
from twostroke.ops.quant.formats import adapter_format
from twostroke.types.errors import ConfigError
from twostroke.types.reading.user_path import user_path
from twostroke.types.spec.formats import WeightFormat

if TYPE_CHECKING:
    from twostroke.ops.passes.with_adapters import AdaptedPart
    from twostroke.runner.adapters.shelf import AdapterShelf

MORE_ADAPTERS, LATER_RANK = 8, 16


class AdapterPlan(Struct, frozen=True, eq=False):
    """Adapters whose weights are not read yet. asked: their names and folders. model: the model that they adapt.

    program: the model's fused program, which also computes adapters. parts: the products that adapters may change.
    weight_format: the format of the adapters' matrices.
    """

    asked: tuple[tuple[str, Path], ...]
    model: Model
    program: Program
    parts: tuple[AdaptedPart, ...]
    weight_format: WeightFormat

    @property
    def counted(self) -> Model:
        """The model from which step times are predicted. Its program also computes the adapters, so that their work is
        counted."""
        return replace(self.model, program=self.program)

    def added_to(self, needs: MemoryNeeds, step_tokens: int, sequences: int) -> MemoryNeeds:
        """Returns the memory that the model and its adapters need together."""
        buffers = place(self.program, step_tokens, sequences + GUESS_ROWS).num_bytes
        held = bank.bank_bytes(self.parts, self.weight_format)
        return structs.replace(needs, buffer_bytes=buffers, adapter_bytes=held)

    def check_beside(self, guessing: GuessingModel | None) -> None:
        """Raises ConfigError where guesses come from speculative heads or layers (Medusa, EAGLE, MTP): these were
        trained on the hidden states of the model without adapters."""
        if guessing is not None and not isinstance(guessing, DraftModel):
            raise ConfigError(
                "--speculate with heads and adapters cannot be together.",
                why="Heads read hidden states, which each adapter changes.",
                fix="Use --speculate auto, or a draft model.",
            )

    def build(self, memory: DeviceMemory) -> AdapterShelf:
        """Reads the adapters of `asked` into `memory`. Raises ConfigError that names the adapter."""
        arrays = bank.AdapterBank(self.parts, self.weight_format, memory)
        made = shelf.AdapterShelf(arrays, lambda path: lora_folder.LoraFolder.open(path, self.model))
        for name, path in self.asked:
            made.load(name, path)
        return made


def plan_adapters(resolver: Resolver, model: Model) -> AdapterPlan | None:
    """Plans the adapters that are asked for, from the headers of their files alone. Returns None where no adapter is
    given and none can be loaded later. Raises ConfigError that names the adapter.

    Where no adapter can be loaded later, only the products that the given adapters change get room for adapter
    matrices. Otherwise every product of the model gets it.
    """
    given = resolver.pick(AdapterSettings.adapter, (), "none asked for")
    folder = resolver.pick(AdapterSettings.adapter_folder, None, "none: clients load none")
    least, more = len(given), MORE_ADAPTERS if folder is not None else 0
    words = f"those given and {more} more" if more else "those given"
    count = resolver.pick(AdapterSettings.max_adapters, least + more, words)
    if count < least:
        raise ConfigError(
            f"--max-adapters {count} is less than the {least} adapters that are given.", fix="Raise it, or give fewer."
        )
    rank = resolver.pick(AdapterSettings.adapter_rank, LATER_RANK, "default; those given may have larger ones")
    if not count:
        return None
    asked = tuple((name, user_path(path)) for name, path in given)
    if len({name for name, _ in asked}) < least:
        raise ConfigError("Two adapters have the same name.", fix="Give each --adapter a name of its own.")
    every = with_adapters.linear_tensors(model.plain) if folder is not None or count > least else ()
    ranks = dict.fromkeys(every, rank)
    for module, own in _ranks_of(asked, model):
        ranks[module] = max(ranks.get(module, 0), own)
    adapted = with_adapters.with_adapters(model.plain, with_adapters.AdapterSpec(count, ranks))
    weight_format = adapter_format(resolver.resolved().model.weights)
    return AdapterPlan(asked, model, fuse(adapted.program, PATTERNS), adapted.parts, weight_format)


def _ranks_of(asked: tuple[tuple[str, Path], ...], model: Model) -> Iterator[tuple[str, int]]:
    for name, path in asked:
        with lora_folder.named_errors(name), lora_folder.LoraFolder.open(path, model) as folder:
            for module, each in folder.modules.items():
                yield module, each.rank
