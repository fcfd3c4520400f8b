"""The embedded model in many types, with weights as the file has them: nothing is rounded a second time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from tests.models.parity import Loaded, relative_error
from tests.weights.gguf.export import TypeOf, all_of, q4_k_m, write_gguf
from tests.weights.gguf.k_quants import q4_k, q5_k, q6_k
from twostroke import LLM, SamplingParams
from twostroke.assets import spark_path
from twostroke.backends.cpu import CpuOps
from twostroke.lab.planner.model_config import read_model
from twostroke.ops.operands import bf16_to_f32
from twostroke.ops.program.model import Model
from twostroke.ops.quant.formats import STORED, format_choice
from twostroke.ops.unpack import unpack
from twostroke.runner.folder import read_folder
from twostroke.types.spec.formats import BF16, F32, WeightKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.gguf.blocks import DECODERS
from twostroke.weights.gguf.unfold import unfold
from twostroke.weights.load import load_weights
from twostroke.weights.packed.numpy_packer import NumpyPacker
from twostroke.weights.packing import stored_packing
from twostroke.weights.stored import HELD, expanded_sentence, rows_in_file, stored_format
from twostroke.weights.tensor_source import TensorInfo

MIXES: dict[str, tuple[TypeOf, set[WeightKind]]] = {
    "Q8_0": (all_of(Type.Q8_0), {WeightKind.FLAT8}),
    "Q1_0": (all_of(Type.Q1_0), {WeightKind.FLAT4}),
    "Q4_0": (all_of(Type.Q4_0), {WeightKind.FLAT4}),
    "Q4_1": (all_of(Type.Q4_1), {WeightKind.FLAT4_MIN}),
    "Q5_0": (all_of(Type.Q5_0), {WeightKind.FLAT5}),
    "Q5_1": (all_of(Type.Q5_1), {WeightKind.FLAT5_MIN}),
    "Q4_K": (all_of(Type.Q4_K), {WeightKind.SUPER4_MIN}),
    "Q5_K": (all_of(Type.Q5_K), {WeightKind.SUPER5_MIN}),
    "Q6_K": (all_of(Type.Q6_K), {WeightKind.SUPER6}),
    "Q4_K_M": (q4_k_m, {WeightKind.SUPER4_MIN, WeightKind.SUPER6, WeightKind.SUPER6_MIN}),
    "TQ2_0": (all_of(Type.TQ2_0), {WeightKind.SUPER2}),
    "MXFP4": (all_of(Type.MXFP4), {WeightKind.E2M1_32}),
    "BF16": (all_of(Type.BF16), {WeightKind.BF16}),
    "F32": (all_of(Type.F32), {WeightKind.F32}),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Callable[[str, TypeOf], Path]:
    folder = tmp_path_factory.mktemp("stored")

    def file(name: str, type_of: TypeOf) -> Path:
        path = folder / f"spark-{name}.gguf"
        return path if path.exists() else write_gguf(spark_path(), path, "llama", type_of)

    return file


@pytest.mark.parametrize("quantize", [q4_k, q5_k, q6_k])
def test_the_quantizers_of_these_tests_are_sound(quantize):
    values = np.random.default_rng(0).normal(0, 1, (5, 512)).astype(np.float32)
    kind = Type[quantize.__name__.upper()]
    found = gguf.quants.dequantize(quantize(values), kind)
    assert np.abs(found - values).max() < {Type.Q4_K: 0.3, Type.Q5_K: 0.15, Type.Q6_K: 0.1}[kind]


@pytest.mark.parametrize("mix", MIXES)
def test_every_value_is_the_file_s(mix, made):
    type_of, kinds = MIXES[mix]
    folder = unfold(made(mix, type_of), None)
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        weights = load_weights(checkpoint, model, format_choice(STORED), NumpyPacker())
        assert {weight.format.kind for weight in weights.matrices.values()} == kinds
        for weight in model.program.weights:
            parts = [checkpoint.read(part.name) for part in weight.parts]
            expected = np.concatenate([bf16_to_f32(p) if p.dtype == np.uint16 else p for p in parts])
            assert np.array_equal(unpack(weights.matrices[weight.key]), expected), weight.key
        assert expanded_sentence(model, checkpoint) is None


class ManyThreads(NumpyPacker):
    num_threads = 4


def test_bytes_do_not_depend_on_threads(made, monkeypatch):
    """Pieces are written in their order, however many are made at once."""
    folder = unfold(made("Q4_K_M", q4_k_m), None)
    model = read_folder(folder)
    monkeypatch.setattr(stored_packing, "PIECE_ELEMENTS", 1 << 15)
    with Checkpoint.open(folder) as checkpoint:
        one, many = (load_weights(checkpoint, model, format_choice(STORED), p()) for p in (NumpyPacker, ManyThreads))
    for key, matrix in one.matrices.items():
        assert np.array_equal(matrix.data, many.matrices[key].data), key


def test_a_tensors_rows_are_sought_once_however_many_its_pieces(made, monkeypatch):
    sought: list[str] = []

    def seek(part, checkpoint):
        sought.append(part.name)
        return rows_in_file(part, checkpoint)

    monkeypatch.setattr(stored_packing, "PIECE_ELEMENTS", 1)
    monkeypatch.setattr(stored_packing, "rows_in_file", seek)
    folder = unfold(made("Q8_0", all_of(Type.Q8_0)), None)
    model = read_folder(folder)
    with Checkpoint.open(folder) as checkpoint:
        load_weights(checkpoint, model, format_choice(STORED), NumpyPacker())
    assert sorted(sought) == sorted(part.name for weight in model.program.weights for part in weight.parts)


def logits(folder: Path, weights: str, ids: list[int]) -> np.ndarray:
    ops = CpuOps(None, 2)
    loaded = Loaded(folder, ops)
    with Checkpoint.open(folder) as checkpoint:
        loaded.weights = load_weights(checkpoint, loaded.model, format_choice(weights), NumpyPacker())
    found = loaded.run(ids, [len(ids)])
    alone = loaded.run(ids, [1] * len(ids))
    ops.close()
    assert np.array_equal(found, alone)  # the number of rows in a step changes no bit
    return found


@pytest.mark.parametrize("mix", ["Q8_0", "Q4_0", "Q4_K_M", "Q5_1"])
def test_logits_are_those_of_the_expanded_file(mix, made):
    """The remaining difference is the rounding of activations to int8."""
    folder = unfold(made(mix, MIXES[mix][0]), None)
    ids = np.random.default_rng(5).integers(0, 4000, 40).tolist()
    assert relative_error(logits(folder, STORED, ids), logits(folder, "f32", ids)) < 0.02


def test_the_answer_and_what_is_said(made, tmp_path, capsys):
    path = made("Q4_K_M", q4_k_m)
    with LLM(str(path), cache=str(tmp_path)) as llm:
        assert llm.resolved["weights"] == STORED
        params = SamplingParams(max_tokens=24, temperature=0.0)
        answer = llm.chat([{"role": "user", "content": "What is prefill?"}], params).completions[0].text
    assert answer.startswith("Prefill") and "expanded" not in capsys.readouterr().err
    path = made("F16", all_of(Type.F16))
    with LLM(str(path), cache="off") as llm:
        pass
    assert "(F16) are expanded to bf16: 10 MB in place of 10 MB" in capsys.readouterr().err


def test_a_plan_knows_the_bytes(made):
    spec = read_model(str(made("Q8_0", all_of(Type.Q8_0)))).spec
    elements = sum(weight.elements for weight in spec.program.weights)
    assert elements * 1.06 < spec.weight_bytes(format_choice(STORED)) < elements * 1.07


def test_without_a_file_stored_means_bf16():
    model: Model = read_folder(spark_path())
    chosen = format_choice(STORED)
    assert {chosen(weight) for weight in model.program.weights} == {BF16}
    router = dataclasses.replace(model.program.weights[0], role="router")
    assert chosen(router) == F32


GUIDE = Path(__file__).parents[3] / "docs/guides/gguf.md"


def test_the_guide_says_what_types_are_packed_as():
    """The kind and the bits of every type of blocks that is kept, as a row of the guide's table has them."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in GUIDE.read_text().splitlines() if "|" in line]
    told: dict[str, tuple[str, float]] = {}
    expanded: tuple[str, ...] = ()
    for types, kinds, bits in (row for row in rows if len(row) == 3):
        names, packed = types.split(", "), kinds.split(", ")
        if kinds.startswith("bf16"):
            expanded = tuple(names)
        if set(packed) <= set(WeightKind.__members__) and not types.startswith("matrices"):
            numbers = [float(each) for each in bits.partition(" (")[0].split(", ")]
            told |= dict(zip(names, zip(packed * len(names), numbers * len(names), strict=False), strict=False))
    assert set(told) == {name for _, held in HELD for name in held}
    assert {name for name in DECODERS if not name.startswith(expanded)} == set(told)
    for name, (kind, number) in told.items():
        found = stored_format([TensorInfo("", (64, 256), 0, 0, name)], True)
        assert (found.kind.name, round(found.bits_per_weight + 1e-9, 2)) == (kind, number), name
