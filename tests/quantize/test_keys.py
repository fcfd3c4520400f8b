"""`twostroke quantize --to keys`: factors of keys reduce the error of rounding K, and a wrong file is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec.structs import replace as replace_struct
from tools.spark.outliers import write_outlier_spark

from tests.bench.random_checkpoint import write_random
from tests.models.families.stored import config_of
from tests.quantize.folders import SMALL, small_folder
from tests.weights.checkpoints import read_tensors, save
from twostroke import LLM, SamplingParams
from twostroke.assembly.find import find_model, resolve_all
from twostroke.assembly.processes.member import CalledRank, follow
from twostroke.assembly.settings.config import room_sentence
from twostroke.assets import spark_path
from twostroke.backends.cpu import best_level
from twostroke.cli.main import main
from twostroke.distributed.ranks.frames import RANKS_VERSION, RankBegin
from twostroke.distributed.ranks.line import RankLine
from twostroke.models.common.blocks import attend
from twostroke.ops.rows.pointwise import PointStep, is_made_by
from twostroke.quantize.driver.calibrate_keys import key_factors, with_factors
from twostroke.quantize.driver.compare import compare
from twostroke.quantize.driver.loaded_model import staged_folder
from twostroke.quantize.driver.texts import CalibrationText, read_texts
from twostroke.quantize.mathematics.key_scaling import choose_exponents
from twostroke.text.tokenizer import Tokenizer
from twostroke.types.errors import ConfigError, CorruptModel
from twostroke.types.spec.formats import KVKind
from twostroke.weights.checkpoint import Checkpoint
from twostroke.weights.key_factors import NAME, KeyFactors, write_key_factors
from twostroke.weights.packed.fingerprint import content_fingerprint


def asked(*words: str) -> Any:
    return CliRunner().invoke(main, ["quantize", *words, "--to", "keys", "--tokens", "2048"])


def with_a_large_channel(folder: Path) -> Path:
    """The same model, but one rotated pair of K's channels is eight times as large, and that of Q is smaller by the
    same factor: keys that a factor helps, whatever the random numbers are."""
    for file in folder.glob("*.safetensors"):
        tensors = read_tensors(file)
        for name in [name for name in tensors if name.endswith(("q_proj.weight", "k_proj.weight"))]:
            heads = tensors[name].reshape(-1, SMALL["head_dim"], SMALL["hidden_size"])
            heads[:, [1, 1 + SMALL["head_dim"] // 2]] *= 8 if "k_proj" in name else 1 / 8
        save(file, tensors, "BF16")
    return folder


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> Path:
    """A small model with its file."""
    folder = with_a_large_channel(small_folder(tmp_path_factory.mktemp("keys") / "model"))
    done = asked(str(folder), "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["file"] == str(folder / NAME) and said["layers"] == 2 and set(said["formats"]) == {"int8", "int4"}
    for cost in said["formats"].values():
        assert 0 < cost["after"]["kl_nats"] < 2 * cost["before"]["kl_nats"]
    return folder


def key_setting(folder: Path, kv_format: str = "int4") -> tuple[str, str]:
    """The setting, and its reason."""
    settings = resolve_all(str(folder), {"kv_format": kv_format}).settings
    return next((each.value, each.reason) for each in settings if each.name == "key_factors")


def test_a_plan_says_that_keys_are_calibrated(calibrated: Path) -> None:
    def planned(kind: str) -> dict[str, Any]:
        words = ["plan", str(calibrated), "--hardware", "h100-sxm", "--kv-format", kind, "--json"]
        return cast(dict[str, Any], json.loads(CliRunner().invoke(main, words).stdout))

    digest = key_setting(calibrated)[0]
    assert planned("int4")["ask"]["key_factors"] == digest and not planned("bf16")["ask"]["key_factors"]
    assert any("int4, calibrated keys" in each for each in planned("int4")["assumptions"])


def test_one_large_channel_gets_a_factor_and_even_channels_get_none():
    rng = np.random.default_rng(1)
    keys, queries = (rng.standard_normal((256, 32)).astype(np.float32) for _ in range(2))
    even = choose_exponents(keys, queries, 7)
    keys[:, 5] *= 32
    queries[:, 5] /= 32
    found = choose_exponents(keys, queries, 7)
    assert found.exponents[5] >= 4 and found.error < 0.05
    assert np.ptp(even.exponents) <= 1 and 0.5 < even.error <= 1


@pytest.mark.slow
def test_int4_keys_with_outliers_cost_less_with_factors_and_the_model_stays_the_same(tmp_path):
    source = write_outlier_spark(tmp_path / "outliers")
    texts = read_texts(None, Tokenizer.from_folder(source), 512, 2048)
    runs = [texts.held_out[0][:160]]
    with staged_folder(source, 2) as exact:
        found = key_factors(exact, replace(texts, used=texts.used[:2, :128]))
        rounded = replace(exact, kv=KVKind.INT4)
        costs = [compare(exact, each, runs, each=False).whole for each in (rounded, with_factors(rounded, found))]
        assert costs[1].mean_kl < 0.5 * costs[0].mean_kl
        program = with_factors(rounded, found).model.plain
        same = replace(exact, model=replace(exact.model, plain=program, program=program))
        assert compare(exact, same, runs, each=False).whole.mean_kl < 1e-9


def test_the_file_is_taken_where_k_is_rounded(calibrated):
    value, reason = key_setting(calibrated)
    assert len(value) == 16 and str(calibrated / NAME) in reason
    assert ", calibrated keys)" in room_sentence(resolve_all(str(calibrated), {"kv_format": "int4"}))
    assert key_setting(calibrated, "bf16") == ("none", "K in bf16 needs none")
    program = find_model(str(calibrated), {"kv_format": "int4"}).spec.program
    assert any(is_made_by(call, PointStep.TIMES_NUMBERS) for call in program.calls)


def test_factors_that_are_all_one_are_no_factors():
    """They cost no step any time."""
    found = KeyFactors({"int8": {0: ((0, 0),), 1: ((1, -1),)}, "int4": {0: ((0, 0),)}})
    assert found.factors(KVKind.INT8) == {1: (2.0, 0.5)} and found.digest(KVKind.INT8)
    assert found.factors(KVKind.INT4) == {} and not found.digest(KVKind.INT4)


def test_an_engine_answers_with_factors_alone_and_in_chunks_with_the_same_bits(calibrated):
    params = SamplingParams(max_tokens=6, temperature=0.0, logprobs=2, ignore_eos=True)
    found = []
    for step in ("16", "256"):
        options = {"kv_format": "int4", "max_step_tokens": step, "max_sequences": 4, "context": 256, "cache": "off"}
        with LLM(str(calibrated), threads=1, kv_memory="4MB", **options) as llm:
            texts = ["what is prefill and what is decode", "why"]
            answers = [*llm.generate(texts, params), *llm.generate(texts[:1], params)]
        found += [[(each.token_id, each.logprob) for each in one.completions[0].logprobs] for one in answers]
    assert found[0] == found[2] == found[3] == found[5] and found[1] == found[4]


def test_a_rank_with_other_factors_than_its_leader_is_refused(calibrated):
    with Checkpoint.open(calibrated) as checkpoint:
        model = content_fingerprint(checkpoint)
    options = {"kv_format": "int4", "cpu_level": best_level()}
    begin = RankBegin(RANKS_VERSION, "tensor", 1, 2, options, (8,), 0, 0, model, 64, 20.0, b"", key_factors="none")
    with pytest.raises(ConfigError, match="factors of keys .*not its leader's .none."):
        follow(str(calibrated), {}, CalledRank(cast(RankLine, None), begin), print)


def change(name: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda said: said.update({name: value})


def exponent(value: Any) -> Callable[[dict[str, Any]], None]:
    def changed(said: dict[str, Any]) -> None:
        said["exponents"]["int8"]["0"][0][0] = value

    return changed


WRONG: list[tuple[Callable[[dict[str, Any]], Any], str]] = [
    (change("version", 2), "of version 2"),
    (change("model", "0" * 32), "belongs to another model"),
    (change("exponents", {"int8": {}}), "int8 must name the caches 0, 1"),
    (change("exponents", {"fp8": {}}), "`exponents` must be"),
    (lambda said: said["exponents"]["int8"]["1"].pop(), "lists of 16 exponents"),
    (exponent(-25), "-25 is no whole number from -24 to 24"),
    (exponent(0.5), "0.5 is no whole number"),
    (exponent(True), "True is no whole number"),
    (exponent(float("nan")), "not valid JSON"),
]


@pytest.mark.parametrize(("change", "words"), WRONG, ids=[words for _, words in WRONG])
def test_a_wrong_file_is_one_error_that_names_it(change, words, calibrated, tmp_path):
    folder = Path(shutil.copytree(calibrated, tmp_path / "model"))
    said = json.loads((folder / NAME).read_text())
    change(said)
    (folder / NAME).write_text(json.dumps(said))
    with pytest.raises(CorruptModel, match=NAME) as caught:
        key_setting(folder)
    assert words in str(caught.value) and caught.value.fix


def test_output_must_hold_the_same_model(calibrated, tmp_path):
    other = small_folder(tmp_path / "other", num_hidden_layers=1)
    wrong = asked(str(calibrated), "--output", str(other), "--no-report")
    assert wrong.exit_code == 2 and "does not hold the model of" in wrong.output
    shipped = asked("spark")
    assert shipped.exit_code == 2 and "part of this program" in shipped.output
    assert not (spark_path() / NAME).exists()
    missing = asked("spark", "--output", str(tmp_path / "nowhere"))
    assert missing.exit_code == 2 and "is no folder" in missing.output and "fix:" in missing.output
    assert not (tmp_path / "nowhere").exists()


def with_a_biased_channel(folder: Path) -> Path:
    """A small Qwen2 whose keys have a bias of 300 in the slowest pair of each head, as in published models."""
    folder.mkdir()
    config = {**config_of("qwen2-biases"), "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
    write_random(config, folder)
    shutil.copy(spark_path() / "tokenizer.json", folder)
    tensors = read_tensors(folder / "model.safetensors")
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    for name in [name for name in tensors if name.endswith("k_proj.bias")]:
        tensors[name].reshape(-1, dim)[:, [dim // 2 - 1, dim - 1]] = 300.0
    save(folder / "model.safetensors", tensors, "F32")
    return folder


@pytest.fixture(scope="module")
def biased(tmp_path_factory) -> Path:
    """A small model whose keys lose the shared part of their bias."""
    return with_a_biased_channel(tmp_path_factory.mktemp("biased") / "model")


def measured_keys(folder: Path) -> KeyFactors:
    """The factors of a folder, measured on 128 random tokens."""
    tokens = np.random.default_rng(3).integers(3, 90, (2, 64))
    with staged_folder(folder, 1) as exact:
        return key_factors(exact, CalibrationText(tokens, tokens, 0))


def test_factors_that_were_measured_with_the_bias_are_refused(biased: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of today lose digits by such factors: on this model they multiply the divergence of int8 by 75."""
    with monkeypatch.context() as before:  # the keys of releases before ADR 83
        before.setattr(attend, "_may_shift_keys", lambda shape, turn: False)
        old = measured_keys(biased)
        path = write_key_factors(biased, old)
        assert old.without_bias == () and key_setting(biased)[0] == old.digest(KVKind.INT4) != ""
    said = json.loads(path.read_text())
    for marks in ([], None):
        if marks is None:
            del said["without_bias"]  # files of those releases have no such field
            path.write_text(json.dumps(said))
        with pytest.raises(CorruptModel, match="from keys with their bias") as caught:
            key_setting(biased)
        assert NAME in str(caught.value) and "--to keys" in str(caught.value.fix)
    planned = CliRunner().invoke(main, ["plan", str(biased), "--hardware", "h100-sxm"])
    assert planned.exit_code == 2 and "from keys with their bias" in planned.output
    path.write_text(json.dumps({**said, "without_bias": [0]}))
    with pytest.raises(CorruptModel, match="measured on other keys"):
        key_setting(biased)


def test_factors_that_were_measured_without_the_bias_are_read(biased: Path) -> None:
    found = measured_keys(biased)
    assert found.without_bias == tuple(found.exponents["int8"]) != ()
    layers = found.exponents["int4"]
    large = {index: ((1, *heads[0][1:]), *heads[1:]) for index, heads in layers.items()}  # random keys need no factors
    write_key_factors(biased, replace_struct(found, exponents={"int4": large, "int8": large}))
    assert len(key_setting(biased)[0]) == 16


def test_an_old_file_of_keys_without_a_bias_is_still_read(calibrated: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(calibrated, tmp_path / "model"))
    said = json.loads((folder / NAME).read_text())
    assert said.pop("without_bias") == []
    (folder / NAME).write_text(json.dumps(said))
    assert key_setting(folder) == (key_setting(calibrated)[0], f"{folder / NAME}: keys are calibrated for int4")
