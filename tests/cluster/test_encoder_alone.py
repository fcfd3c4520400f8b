"""A replica of the role `encode` has the encoder alone. It reads no tensor of the language model and plans no memory
for it, and its arithmetic must be that of the other replicas' encoders."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from tests.cluster.test_encode_role import answers, front_of, requests
from tests.cluster.test_images_of_replicas import OPTIONS, replica
from tests.cluster.test_kill_transfer import SOURCE
from tests.patience import PATIENCE_S
from tests.vision.folders import FAMILIES, smolvlm, write_family
from tests.vision.projectors import write_projector, write_text
from twostroke.assembly.find import FoundEncoder, find_encoder, find_model
from twostroke.assembly.images.encoder_heart import build_encoder_heart
from twostroke.assembly.settings.engine_settings import CacheSettings, MemorySettings
from twostroke.assembly.settings.env import process_environment
from twostroke.distributed.cluster.arithmetic import difference
from twostroke.distributed.wire.frames import ReplicaFacts
from twostroke.ops.quant.formats import format_choice
from twostroke.types.errors import ConfigError, OutOfMemory
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.tensors import wanted_tensors


class Reads:
    """Records the names of all tensors that are read, in rows or whole."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.names: set[str] = set()
        for method in ("read", "read_rows", "read_stored"):
            patch.setattr(Checkpoint, method, self._noting(getattr(Checkpoint, method)))

    def _noting(self, method: Any) -> Any:
        def noted(checkpoint: Checkpoint, name: str, *rest: Any, **named: Any) -> Any:
            self.names.add(name)
            return method(checkpoint, name, *rest, **named)

        return noted


def tensors_of(found: FoundEncoder) -> set[str]:
    """The names of the encoder's tensors."""
    encoder = found.sight.encoder
    return {tensor.name for tensor in wanted_tensors(encoder.model)} | encoder.sight.tensors


@pytest.mark.parametrize("name", FAMILIES)
def test_the_tensors_of_the_encoder_are_read_and_no_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_family(name, tmp_path)
    reads = Reads(monkeypatch)
    found = find_encoder(str(tmp_path), OPTIONS)
    assert not reads.names, "the plan reads no weights"
    with build_encoder_heart(found) as heart:
        rows = heart.kept.made_of(found.sight.probe())
    assert reads.names == tensors_of(found)
    assert not reads.names & {tensor.name for tensor in wanted_tensors(found.spec)}
    assert rows.nbytes == len(rows) * heart.rows.row_bytes and 0 < len(rows) <= 4


def test_an_encoder_in_a_file_of_its_own_is_all_that_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, files = tmp_path / "folder", tmp_path / "files"
    files.mkdir()
    write_family("qwen3-vl", folder)
    write_text(folder, files / "model.gguf", "qwen3vl")
    write_projector(folder, files / "mmproj-model.gguf", "qwen3vl_merger")
    reads = Reads(monkeypatch)
    found = find_encoder(str(files / "model.gguf"), OPTIONS)
    reads.names.clear()
    with build_encoder_heart(found) as heart:
        assert heart.kept.num_pieces == 0
    assert reads.names == tensors_of(found)


def test_the_memory_of_the_encoder_is_all_that_is_planned(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    found, whole = find_encoder(str(tmp_path), OPTIONS), find_model(str(tmp_path), OPTIONS)
    resolved = found.resolver.resolved()
    chosen = format_choice("f32")
    own = found.sight.encoder.model.weight_bytes(chosen)
    assert resolved.memory.weight_bytes == own
    assert whole.resolver.resolved().memory.weight_bytes == own + whole.spec.weight_bytes(chosen)
    names = {setting.name for setting in resolved.settings}
    assert MemorySettings.buffer_bytes.name in names and CacheSettings.kv_tokens.name not in names
    with pytest.raises(OutOfMemory, match=r"encoder does not fit.*image rows 1000\.00 GB.*--image-cache"):
        find_encoder(str(tmp_path), {**OPTIONS, "image_cache": "1000GB"})


@pytest.mark.parametrize("option", ["device", "tensor_parallel", "pipeline_parallel"])
def test_what_an_encoder_cannot_have_is_refused(option: str, tmp_path: Path) -> None:
    smolvlm(tmp_path)
    value = "cuda" if option == "device" else 2
    with pytest.raises(ConfigError, match=f"--role encode and --{option.replace('_', '-')} cannot be together"):
        find_encoder(str(tmp_path), {**OPTIONS, option: value})


def test_an_encoder_that_comes_first_waits_and_then_encodes(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    asked = requests(tmp_path)
    with ExitStack() as stack:
        encoder, encodes = stack.enter_context(replica(tmp_path, "e", "encode"))
        early = front_of([], "s")
        early._addresses = [encodes]
        while not any("no replica that computes requests" in state for _, state in early.states()):
            early._exchange()
        assert early.facts is None and not early.fleet.members
        _, computes = stack.enter_context(replica(tmp_path, "t"))
        early._addresses = [encodes, computes]
        while len(early.fleet.members) < 2:
            early._exchange()
        assert early.facts is not None and early.facts.name == "t"
        answers(early, asked)
        assert encoder.heart.kept.num_pieces > 0
        early.close()


def facts_of(folder: Path, role: Any, **options: Any) -> ReplicaFacts:
    with replica(folder, role, role, **options) as (built, _):
        return built.replica._facts


def test_an_encoder_is_compared_by_what_makes_image_rows(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    whole, encoder = facts_of(tmp_path, "both"), facts_of(tmp_path, "encode", context=512)
    assert difference(whole, encoder) == difference(encoder, whole) == "", "its context is nobody's"
    assert encoder.pool_tokens == 0 and encoder.encoder == whole.encoder == encoder.arithmetic
    assert encoder.image_row_bytes == whole.image_row_bytes and encoder.sight == whole.sight
    assert "the encoder's weights (f32 and bf16)" == difference(whole, facts_of(tmp_path, "encode", weights="bf16"))
    assert encoder.encoder is not None
    other = structs.replace(encoder, encoder=structs.replace(encoder.encoder, probe="x"))
    assert "the encoder's probe" in difference(whole, other), "other rows of the same tile"


@pytest.mark.slow
def test_the_command_prints_its_memory(tmp_path: Path) -> None:
    smolvlm(tmp_path)
    words = ["replica", str(tmp_path), "--role", "encode", "--listen", "127.0.0.1:0", "--threads", "1"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "twostroke", *words, "--image-cache", "3MB"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=process_environment() | {"PYTHONPATH": str(SOURCE)},
    )
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
    assert "listens on 127.0.0.1:" in lines[0]
    assert lines[1].startswith("The encoder of images alone: weights ") and "image rows up to 3.0 MB" in lines[1]
