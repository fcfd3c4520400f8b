"""Quantizes a model stage by stage (half a layer at a time, in most models). The text runs through a stage, codes are
found and written, and the next stage gets the outputs of the rounded weights.

Memory holds one stage in float32, sums over the inputs of its products, and the text's hidden states between two
stages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from twostroke.ops.program.model import Model
from twostroke.quantize.driver.job import Job, JobFolder
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.methods import GROUPS, Method
from twostroke.quantize.driver.products import IN_STACKS, WEIGHT, StageProducts, stage_products, tensor_users
from twostroke.quantize.driver.solve_stage import ProductError, StageInputs, solve_stage
from twostroke.quantize.driver.stages import StagedModel
from twostroke.quantize.driver.stored_stage import StoredStage
from twostroke.quantize.driver.texts import CalibrationText
from twostroke.runner.folder import read_folder
from twostroke.types.errors import UnsupportedModel
from twostroke.types.pooling import Task
from twostroke.weights.checkpoint import SafetensorsTensor
from twostroke.weights.gguf.unfold import NAME_FILE
from twostroke.weights.json_file import read_object
from twostroke.weights.packed.fingerprint import content_fingerprint
from twostroke.weights.quantized.recipe import scheme_in
from twostroke.weights.stacks import StackedTensor

Progress = Callable[[int, int, str], None]
"""A function that shows progress: progress(done, total, what), in bytes of the checkpoint."""


def no_progress(done: int, total: int, what: str) -> None:
    """Shows no progress: the default of functions that take a `Progress`."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """The result of quantizing a folder. folder: the new folder, or the GGUF file. errors: the error of each product
    that was rounded. kept: modules that stay in floats, each with the reason. from_stage: the first stage of this run;
    an interrupted run wrote the earlier ones."""

    folder: Path
    group: int
    errors: tuple[ProductError, ...]
    kept: Mapping[str, str]
    stages: int
    from_stage: int


def read_original(folder: Path) -> Model:
    """Reads the model of a folder whose weights are not quantized yet. Raises UnsupportedModel, and the errors of
    reading."""
    unfolded = (folder / NAME_FILE).is_file()
    if unfolded or scheme_in(folder) is not None:
        file = read_object(folder / NAME_FILE).get("file") if unfolded else None
        raise UnsupportedModel(
            f"{file} is a GGUF file." if unfolded else f"The model in {folder} is quantized already.",
            why="The model is already quantized, and rounding it again would add a second error.",
            fix="Give the original checkpoint (safetensors in bfloat16, float16 or float32).",
        )
    return read_folder(folder, apart=True)


def read_source(folder: Path) -> Model:
    """Reads the model of a folder that can be calibrated. Raises UnsupportedModel, and the errors of reading."""
    model = read_original(folder)
    if model.task is not Task.GENERATE:
        raise UnsupportedModel(
            f"{model.architecture} makes no text, and calibration is judged by a text's next tokens.",
            fix="Use --weights int8 or int4 when it is served, or --to gguf:Q8_0: they need no calibration.",
        )
    return model


def quantize_folder(
    folder: Path, output: Path, method: Method, texts: CalibrationText, threads: int, progress: Progress = no_progress
) -> Quantized:
    """Writes the quantized model. Raises TwostrokeError. After an interruption the same call continues the job."""
    model = read_source(folder)
    with staged_folder(folder, threads, model=model) as source:
        return _Run(source, method, texts, progress).write(folder, output)


class _Run:
    """One job of quantizing a folder."""

    def __init__(self, source: StagedModel, method: Method, texts: CalibrationText, progress: Progress) -> None:
        self._source, self._method, self._texts, self._progress = source, method, texts, progress
        users = tensor_users(source.model.plain)
        found = [stage_products(stage, source.model.plain, users) for stage in source.stages]
        self._group = _group(found, method)
        self._kept: dict[str, str] = {}
        self._products = [self._storable(each) for each in found]
        _require_banks(source.model, self._kept)
        if not any(each.products for each in self._products):
            raise _nothing(source.model, self._kept)

    def write(self, folder: Path, output: Path) -> Quantized:
        """Quantizes the model in `folder` stage by stage, and writes each stage to a file in `output`; at last, it
        writes the tensors that no stage reads."""
        source, count = self._source, len(self._source.stages)
        stored = StoredStage(source, self._method.layout, self._group)
        job = Job(self._method.name, content_fingerprint(source.checkpoint), self._texts.digest, self._group)
        place = JobFolder.open(output, job, count)
        place.require_room(stored.estimate(self._products))
        inputs = StageInputs(list(self._texts.used), [])
        shard_of: dict[str, str] = {}
        total = sum(shard.path.stat().st_size for shard in source.checkpoint.shards.values())
        first_new = next((index for index in range(count) if not place.is_done(index)), count)
        for index in range(count):
            self._progress(total * index // count, total, f"stage {index + 1} of {count}")
            file = place.stage_file(index)
            if not place.is_done(index):
                solved = solve_stage(source, index, inputs, self._products[index], self._method, self._group)
                place.write_stage(index, stored.tensors(index, solved, shard_of), [asdict(e) for e in solved.errors])
            shard_of.update(dict.fromkeys(stored.names_in(file), file.name))
            if index < count - 1:
                weights = stored.weights(index, file)
                given = source.run(index, weights, inputs.runs, inputs.given, None)
                inputs = replace(inputs, given=given)
        if not place.is_done(count):
            place.write_stage(count, stored.rest(shard_of))
        shard_of.update(dict.fromkeys(stored.names_in(place.stage_file(count)), place.stage_file(count).name))
        known = place.errors()
        errors = [ProductError(**each) for index in range(count) for each in known.get(str(index), ())]
        place.finish(shard_of, self._config(folder), folder)
        self._progress(total, total, "done")
        return Quantized(output, self._group, tuple(errors), self._kept, count, first_new)

    def _config(self, folder: Path) -> dict[str, Any]:
        usual = read_object(folder / "config.json")
        left_out = tuple(dict.fromkeys(self._kept))
        return {**usual, "quantization_config": self._method.layout.config(self._group, left_out)}

    def _storable(self, found: StageProducts) -> StageProducts:
        """Returns the products that the layout can store, and adds the others with the reason to `_kept`: they stay in
        floats."""
        self._kept |= found.kept
        fitting = []
        for product in found.products:
            if not all(
                isinstance(self._source.checkpoint.tensors[name], SafetensorsTensor | StackedTensor)
                for name in product.tensors
            ):
                self._kept |= {name.removesuffix(WEIGHT): IN_STACKS for name in product.tensors}
                continue
            shapes = product.tensors.values()
            if all(self._method.layout.group_for(*shape, self._group) for shape in shapes):
                fitting.append(product)
                continue
            reason = f"its shape is no multiple of groups of {self._group} columns or of whole words"
            self._kept |= {name.removesuffix(WEIGHT): reason for name in product.tensors}
        return replace(found, products=tuple(fitting))


def _group(found: list[StageProducts], method: Method) -> int:
    """Returns the group size, in columns, with which the layout can store the most elements of these matrices as codes.
    Not every matrix shape fits every group size. Of several such sizes it is the largest."""
    shapes = [shape for each in found for product in each.products for shape in product.tensors.values()]

    def fitting(group: int) -> int:
        return sum(rows * columns for rows, columns in shapes if method.layout.group_for(rows, columns, group))

    return max(GROUPS, key=lambda group: (fitting(group), group))


def _nothing(model: Model, kept: Mapping[str, str]) -> UnsupportedModel:
    module, reason = next(iter(kept.items()), ("", "it has no products"))
    return UnsupportedModel(
        f"No matrix of this {model.architecture} can be calibrated.",
        why=f"The first one is {module}: {reason}.",
        fix="Use --weights int4 or int8 when it is served: they need no calibration.",
    )


def _require_banks(model: Model, kept: Mapping[str, str]) -> None:
    """Raises UnsupportedModel where experts would stay in floats. Experts are most of a mixture's weights, so such a
    file would be hardly smaller."""
    for weight in model.plain.weights:
        module = weight.parts[0].name.removesuffix(WEIGHT)
        if weight.experts and module in kept:
            raise UnsupportedModel(
                f"The experts of this {model.architecture} cannot be calibrated.",
                why=f"{module}: {kept[module]}.",
                fix="Use --weights int4 or int8 when it is served: they need no calibration.",
            )
