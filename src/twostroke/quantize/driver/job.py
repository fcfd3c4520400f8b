"""A job: what is quantized and how, and its folder, in which each finished stage is a file of its own.

    OUTPUT/quantize.json                      the job, until it is done
    OUTPUT/model-00003-of-00012.safetensors   a stage, whole
    OUTPUT/config.json                        written last: without it no program takes the folder for a model

The same command in the same folder continues after the last whole stage.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twostroke.quantize.driver.tensor_file import TensorToWrite, require_room, write_atomically, write_tensors
from twostroke.types.errors import ConfigError
from twostroke.weights.checkpoint import INDEX_NAME
from twostroke.weights.json_file import read_object

JOB_NAME = "quantize.json"
CONFIG_NAME = "config.json"
REPORT_NAME = "quantize-report.json"
VERSION = 1
LARGEST_COPY = 256 << 20
NOT_COPIED = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".partial")


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that decides the bytes of the result. source: the fingerprint of the checkpoint. texts: the
    fingerprint of the texts' token ids."""

    target: str
    source: str
    texts: str
    group: int
    version: int = VERSION


@dataclass(frozen=True, slots=True)
class JobFolder:
    """The output folder of a job that quantizes a model in `stages` stages, each of which becomes a file."""

    path: Path
    stages: int

    @classmethod
    def open(cls, path: Path, job: Job, stages: int) -> JobFolder:
        """Makes the folder, or continues the job in it. Raises ConfigError for a folder with other content, or one that
        cannot be written."""
        said = asdict(job)
        try:
            if (path / JOB_NAME).is_file():
                _require_same(path, read_object(path / JOB_NAME), said)
            elif path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise ConfigError(
                    f"--output {path} exists already.",
                    why="It is not the folder of a job that was interrupted, and nothing is overwritten.",
                    fix="Name a folder that does not exist, or remove it.",
                )
            else:
                path.mkdir(parents=True, exist_ok=True)
                write_atomically(path / JOB_NAME, (json.dumps(said, indent=1).encode(),))
        except OSError as error:
            raise _unwritable(path, error) from None
        return cls(path, stages)

    def stage_file(self, index: int) -> Path:
        """Returns the file of stage `index`. The index `stages` stands for the tensors that no stage reads."""
        return self.path / f"model-{index + 1:05}-of-{self.stages + 1:05}.safetensors"

    def is_done(self, index: int) -> bool:
        """Returns whether the stage's file exists. It gets its name only when it is complete."""
        return self.stage_file(index).is_file()

    def require_room(self, num_bytes: int) -> None:
        """Raises ConfigError where the disk has no room for the rest of the result. num_bytes: the size of the whole
        result; files that the folder has already are subtracted."""
        require_room(self.path, max(0, num_bytes - self._num_bytes))

    def errors(self) -> dict[str, Any]:
        """Returns the `errors` that `write_stage` was given for each finished stage, by the stage's number."""
        found = read_object(self.path / JOB_NAME).get("errors")
        return dict(found) if isinstance(found, dict) else {}

    def write_stage(self, index: int, tensors: Mapping[str, TensorToWrite], errors: Sequence[Any] = ()) -> None:
        """Writes the file of a stage. errors: figures for the report. Raises ConfigError where the file cannot be
        written; finished stages stay."""
        try:
            said = {**read_object(self.path / JOB_NAME), "errors": {**self.errors(), str(index): list(errors)}}
            write_atomically(self.path / JOB_NAME, (json.dumps(said).encode(),))
            write_tensors(self.stage_file(index), tensors)
        except OSError as error:
            raise ConfigError(
                f"Stage {index + 1} of {self.stages} cannot be written to {self.path}.",
                why=f"{error.strerror or error}.",
                fix="Free space on the disk and run the same command again: it goes on after the last whole stage.",
            ) from None

    def finish(self, shard_of: Mapping[str, str], config: Mapping[str, Any], source: Path) -> None:
        """Writes the index, all files next to the weights, and config.json last. Raises ConfigError as `write_stage`
        does."""
        try:
            index = {"metadata": {"total_size": self._num_bytes}, "weight_map": dict(sorted(shard_of.items()))}
            write_atomically(self.path / INDEX_NAME, (json.dumps(index, indent=1).encode(),))
            for file in sorted(source.iterdir()):
                if _is_copied(file):
                    write_atomically(self.path / file.name, (file.read_bytes(),))
            write_atomically(self.path / CONFIG_NAME, (json.dumps(config, indent=2).encode(),))
            (self.path / JOB_NAME).unlink()
        except OSError as error:
            raise _unwritable(self.path, error) from None

    @property
    def _num_bytes(self) -> int:
        return sum(file.stat().st_size for file in self.path.glob("model-*.safetensors"))

    def write_report(self, report: Mapping[str, Any]) -> None:
        """Writes the report next to the model. Raises ConfigError."""
        try:
            write_atomically(self.path / REPORT_NAME, (json.dumps(report, indent=1).encode(),))
        except OSError as error:
            raise _unwritable(self.path, error) from None


def _is_copied(file: Path) -> bool:
    """Returns True for tokenizer, templates, generation settings and licence; False for weights, index and config of
    the original."""
    if not file.is_file() or file.name in (CONFIG_NAME, INDEX_NAME, JOB_NAME, REPORT_NAME) or file.name[0] == ".":
        return False
    return file.suffix not in NOT_COPIED and os.stat(file).st_size <= LARGEST_COPY


def _require_same(path: Path, found: Mapping[str, Any], said: Mapping[str, Any]) -> None:
    names = {"target": "--to", "source": "the model", "texts": "--text or --tokens", "group": "the group size"}
    for member, value in said.items():
        if found.get(member) != value:
            raise ConfigError(
                f"--output {path} holds an interrupted job that differs in {names.get(member, member)}.",
                why=f"It began with {found.get(member)!r}, and now it is {value!r}.",
                fix="Repeat the first command to go on with it, or name another folder.",
            )


def _unwritable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(
        f"--output {path} cannot be written.",
        why=f"{error.strerror or error}.",
        fix="Free space or name a folder that can be written to; the same command goes on where this one stopped.",
    )
