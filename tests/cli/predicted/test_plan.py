"""`twostroke plan` and `twostroke doctor` as a user runs them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cost.machines import calibration
from tests.planner.figures import LLAMA3_70B
from tests.weights.fake_hub import Repo, serve
from twostroke.backends.cpu.calibration_file import write_calibration
from twostroke.cli.main import main
from twostroke.cli.shared.readings import duration_s
from twostroke.cost.calibration import ExchangeRates
from twostroke.lab.planner.doctor.machine import ThisMachine


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A cache folder in which the doctor has measured this machine before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    patient = ThisMachine.read().patient
    write_calibration(tmp_path / "cache" / "twostroke", calibration(fingerprint=patient.fingerprint))
    yield tmp_path


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A model's folder with nothing but its config.json."""
    place = tmp_path / "big"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(LLAMA3_70B))
    return str(place)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, words, catch_exceptions=False)


def test_plan_for_this_machine_uses_what_the_doctor_kept(kept: Path) -> None:
    result = run("plan", "--json")
    assert result.exit_code == 0 and "measuring" not in result.stderr
    found = json.loads(result.stdout)
    assert found["model"] == "spark" and found["hardware"]["name"] == "here"
    assert found["hardware"]["read_bytes_per_s"] == 40e9
    assert any("twostroke doctor" in each for each in found["assumptions"])


def test_doctor_says_what_it_kept_and_what_it_means(kept: Path) -> None:
    result = run("doctor")
    assert result.exit_code == 0
    for needle in ("a processor", "40.0 GB/s", "1,600 GOP/s", "bfloat16", "cannot pass", "kept from before"):
        assert needle in result.stdout, needle
    found = json.loads(run("doctor", "--json").stdout)
    assert found["kept"] is True and found["calibration"]["read_bytes_per_s"] == 40e9
    assert [each["weights"] for each in found["one_billion"]] == ["int8", "int4"]
    assert found["one_billion"][0]["decode_tokens_per_s"] < found["one_billion"][0]["decode_ceiling_tokens_per_s"]


def test_doctor_says_when_others_disturbed_it(kept: Path) -> None:
    patient = ThisMachine.read().patient
    disturbed = calibration(fingerprint=patient.fingerprint, others_share=0.4)
    write_calibration(kept / "cache" / "twostroke", disturbed)
    assert "other programs took 40% of the cores" in run("doctor").stdout


def test_doctor_on_a_busy_machine_keeps_nothing_and_says_so(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from twostroke.lab.planner.doctor import machine
    from twostroke.lab.planner.doctor.examine import machine_busy

    def busy(patient: Any, clock: Any, note: Any) -> Any:
        note(1, 2, "a part")
        return calibration(fingerprint=patient.fingerprint, others_share=0.4)

    monkeypatch.setattr(machine.ThisMachine.measure, "__defaults__", (busy,))
    before = [path.read_bytes() for path in sorted((kept / "cache" / "twostroke" / "doctor").iterdir())]
    told = run("doctor", "--fresh")
    assert told.exit_code == 1 and "The machine is busy: figures not kept." in told.stderr and "40%" in told.stderr
    assert "reads memory at" in told.stdout and "kept for" not in told.stdout
    found = json.loads(run("doctor", "--fresh", "--json").stdout)
    assert found["verdict"] == "The machine is busy: figures not kept."
    assert [path.read_bytes() for path in sorted((kept / "cache" / "twostroke" / "doctor").iterdir())] == before

    def given_up(patient: Any, clock: Any, note: Any) -> Any:
        raise machine_busy(0.7)

    monkeypatch.setattr(machine.ThisMachine.measure, "__defaults__", (given_up,))
    result = run("doctor", "--fresh", "--json")
    assert result.exit_code == 1 and json.loads(result.stdout)["calibration"] is None


def test_plan_of_a_folder_on_named_hardware(folder: str) -> None:
    words = ["plan", folder, "--hardware", "h100-sxm", "--weights", "int4", "--concurrency", "8", "--itl", "50ms"]
    result = run(*words, "--price-per-hour", "3")
    assert result.exit_code == 0
    for needle in ("70.6 B", "ridge 591", "--itl 50 ms: met", "a million output tokens", "Assumptions:", "655 MB"):
        assert needle in result.stdout, needle


def test_plan_of_a_hub_model_downloads_config_json_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"config.json": json.dumps(LLAMA3_70B).encode(), "model.safetensors": b"w" * 999}
    with serve({"meta/big": Repo({"c" * 40: files}, {"main": "c" * 40})}) as hub:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        )
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
        result = run("plan", "meta/big", "--hardware", "b200", "--json")
        asked = {path for _, path in hub.requests if path.startswith("/meta/")}
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["memory"]["parameters"] > 70e9
    assert asked == {"/meta/big/resolve/main/config.json"}


def test_what_does_not_fit_ends_with_code_4_and_names_the_reserve(folder: str) -> None:
    words = ["plan", folder, "--hardware", "rtx4090", "--weights", "int8"]
    told = run(*words)
    assert told.exit_code == 4
    assert "DOES NOT FIT" in told.stdout and "24 GB there may be used 21.6 GB" in told.stdout
    assert "10%, 2.4 GB, are the reserve" in told.stdout
    found = json.loads(run(*words, "--json").stdout)
    assert run(*words, "--json").exit_code == 4
    assert found["memory"]["fits"] is False and found["memory"]["reserve_bytes"] == 2_400_000_000
    assert found["memory"]["needed_bytes"] > 21.6e9
    assert run("plan", folder, "--hardware", "h200", "--weights", "int8").exit_code == 0


def test_a_long_catalogue_stays_readable(folder: str) -> None:
    told = run("plan", "spark", "--hardware", "ryzen-7840u").stdout
    assert "and, more slowly:" in told
    lacking = run("plan", folder, "--hardware", "h200").stdout
    assert "would not do (does not hold them):" in lacking and "ryzen-7950x" in lacking


@pytest.mark.parametrize("name", ["roof.svg", "roof.png", "ROOF.PNG"])
def test_plot_writes_a_picture(folder: str, tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    target.write_bytes(b"an older picture")
    result = run("plan", folder, "--hardware", "h200", "--plot", str(target))
    assert result.exit_code == 0
    assert target.read_bytes().startswith(b"\x89PNG" if name.lower().endswith("png") else b"<svg")
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


def test_a_plot_that_cannot_be_finished_leaves_the_old_one(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "roof.svg"
    target.write_bytes(b"an older picture")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    result = run("plan", folder, "--hardware", "h200", "--plot", str(target))
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert target.read_bytes() == b"an older picture"
    assert not [path for path in tmp_path.iterdir() if "partial" in path.name]


WRONG: list[tuple[list[str], list[str]]] = [
    (["--hardware", "h100-sxn"], ["h100-sxn", "Did you mean h100-sxm?"]),
    (["--hardware", "99xh200"], ["1 to 8"]),
    (["--hardware", "h200", "--ttft", "1us"], ["--ttft 1 us cannot be met", "The best is"]),
    (["--hardware", "h200", "--itl", "1us"], ["--itl 1 us cannot be met"]),
    (["--hardware", "h200", "--concurrency", "1000000"], ["--concurrency 1000000", "fits nowhere"]),
    (["--hardware", "h200", "--ttft", "soon"], ["'soon'", "50ms"]),
    (["--hardware", "h200", "--ttft", "0s"], ["'0s'"]),
    (["--hardware", "h200", "--weights", "int3"], ["int3", "int8"]),
    (["--hardware", "h200", "--context", "999999"], ["--context", "131,072"]),
    (["--hardware", "h200", "--price-per-hour", "0"], ["price-per-hour"]),
    (["--hardware", "h200", "--plot", "x.pdf"], ["x.pdf", ".png or .svg"]),
    (
        ["--hardware", "h200", "--plot", "/no/such/folder/x.svg"],
        ["/no/such/folder/x.svg", "no folder /no/such"],
    ),
]


@pytest.mark.parametrize(("words", "needles"), WRONG)
def test_wrong_input_gets_one_clear_error_and_code_2(folder: str, words: list[str], needles: list[str]) -> None:
    result = run("plan", folder, *words)
    assert result.exit_code == 2 and result.stdout == ""
    assert all(needle in result.stderr for needle in needles), result.stderr


def test_a_config_without_a_field_gets_code_2_and_its_name(folder: str) -> None:
    config: dict[str, Any] = {name: value for name, value in LLAMA3_70B.items() if name != "intermediate_size"}
    (Path(folder) / "config.json").write_text(json.dumps(config))
    result = run("plan", folder, "--hardware", "h200")
    assert result.exit_code == 2 and "intermediate_size is missing" in result.stderr


@pytest.mark.parametrize(("text", "seconds"), [("1s", 1.0), ("50ms", 0.05), (" 2 us", 2e-6), ("0.5", 0.5)])
def test_durations(text: str, seconds: float) -> None:
    assert duration_s(text) == pytest.approx(seconds)


@pytest.mark.daily
def test_bench_predict_prints_ratios(kept: Path) -> None:
    words = ["bench", "predict", "--weights", "int8", "--prompts", "32,9000", "--batches", "1,2", "--at", "16"]
    result = run(*words, "--new", "4", "--rounds", "1", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    cases = [(each["phase"], each["streams"], each["tokens"]) for each in found["cases"]]
    assert cases == [("prefill", 1, 32), ("prefill", 1, 2044), ("decode", 1, 16), ("decode", 2, 16)]
    assert all(each["ratio"] == each["predicted"] / each["measured"] for each in found["cases"])
    assert found["goal"] == 0.15


@pytest.mark.parametrize(
    ("words", "needles"),
    [(["--weights", "int9"], ["int9"]), (["--prompts", "a"], ["1,4,8"]), (["--at", "2048"], ["--at 2048"])],
)
def test_bench_predict_refuses_what_it_cannot(kept: Path, words: list[str], needles: list[str]) -> None:
    result = run("bench", "predict", *words)
    assert result.exit_code == 2 and all(needle in result.stderr for needle in needles), result.stderr


LINK = ("--exchange-time", "40us", "--exchange-rate", "10Gbit/s")


def test_a_plan_over_ranks_names_each_part_and_refuses_what_it_does_not_know(kept: Path, folder: str) -> None:
    words = ("plan", folder, "--hardware", "rtx-4090", "--tensor-parallel")
    found = json.loads(run(*words, "4", *LINK, "--json").stdout)
    assert [part["name"] for part in found["parts"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert found["link"]["meeting_s"] == pytest.approx(40e-6) and found["sequences"] > 0 and found["predicted_steps"]
    small = run(*words, "8", *LINK, "--memory", "1GB")
    assert small.exit_code == 4 and "the largest rank needs" in small.stderr
    uneven = run(*words, "3", *LINK)
    assert uneven.exit_code == 2 and "1 or 2 or 4 or 8" in uneven.stderr
    unknown = run(*words, "4")
    assert unknown.exit_code == 2 and "The catalogue has no figure for it" in unknown.stderr
    alone = run("plan", folder, "--hardware", "h100-sxm", *LINK)
    assert alone.exit_code == 2 and "--exchange-time belongs to" in alone.stderr
    beside = run(*words, "4", *LINK, "--price-per-hour", "2")
    assert beside.exit_code == 2 and "--price-per-hour is not possible" in beside.stderr


def test_a_count_of_ranks_is_refused_before_the_machine_is_measured(
    kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*words: object) -> None:
        raise AssertionError("the machine was measured first")

    monkeypatch.setattr(ThisMachine, "kept_or_measured", measured)
    refused = run("plan", "--tensor-parallel", "3")
    assert refused.exit_code == 2 and "measured first" not in refused.output


def test_ranks_of_this_machine_have_a_share_of_it_and_its_measured_exchange(kept: Path) -> None:
    patient = ThisMachine.read(max(1, ThisMachine.read().cores // 2)).patient
    values = {"fingerprint": patient.fingerprint, "threads": patient.threads}
    write_calibration(kept / "cache" / "twostroke", calibration(**values))
    assert "kept measurement of this machine lacks it" in run("plan", "--pipeline-parallel", "2").stderr
    measured = calibration(**values, exchange=ExchangeRates(4e-6, 3e9))
    write_calibration(kept / "cache" / "twostroke", measured)
    text = run("plan", "--pipeline-parallel", "2").stdout
    assert "each on 1/2 of this machine" in text
    assert "time and rate as `twostroke doctor` measured it here" in text and "a meeting takes 4 us" in text
