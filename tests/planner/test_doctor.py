"""The doctor with little effort on the real kernels: the figures that it keeps, and its output."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cost.machines import calibration
from twostroke.assembly.settings.env import Machine, Moment, others_share, read_moment
from twostroke.cost.calibration import Calibration
from twostroke.cost.model_cost import step_cost
from twostroke.cost.shape import Segment
from twostroke.lab.planner.doctor.examine import Effort, MachineBusy, MeasuredMachine, Quiet, examine
from twostroke.lab.planner.doctor.machine import ThisMachine, examine_on_the_way
from twostroke.lab.planner.doctor.meaning import meaning
from twostroke.lab.planner.doctor.measure_ops import _rising
from twostroke.lab.planner.doctor.stopwatch import Stopwatch, usual
from twostroke.lab.planner.model_config import read_model
from twostroke.models.common.work import work_of
from twostroke.types.errors import ConfigError, OutOfMemory
from twostroke.types.spec.formats import KVKind, WeightKind

LITTLE = Effort(ring_bytes=256 << 20, rounds=1, rows=(1, 8, 64), few_rows=(1, 8), least_s=0.001)


@pytest.fixture(scope="module")
def measured() -> Iterator[tuple[Calibration, list[tuple[int, int, str]]]]:
    notes: list[tuple[int, int, str]] = []
    patient = MeasuredMachine("mark", "this processor", 1, 8 * 10**9)
    yield examine(patient, time.perf_counter, lambda *note: notes.append(note), LITTLE, lambda: None), notes


@pytest.mark.slow
def test_everything_is_measured(measured: tuple[Calibration, list[tuple[int, int, str]]]) -> None:
    found, _ = measured
    assert (found.fingerprint, found.title, found.threads) == ("mark", "this processor", 1)
    assert set(found.linear) == {kind for kind in WeightKind if not kind.is_stored} and set(found.attention) == set(
        KVKind
    )
    # Units, not speed: a machine that stands still for a while is slow.
    assert found.read_bytes_per_s > 1e6 and found.f32_flops_per_s > 1e6 and found.int8_ops_per_s > 1e6
    assert found.bf16_flops_per_s > 1e6
    for rates in found.linear.values():
        assert all(y > 0 for y in rates.cold.ys) and all(y >= 0 for y in rates.features.ys)
        assert list(rates.cold.ys) == sorted(rates.cold.ys), "more rows never take less time"
    assert all(rates.prefill.ys[-1] > 0 for rates in found.attention.values())
    assert found.exchange is not None and 0 < found.exchange.meeting_s < 10 and found.exchange.bytes_per_s > 1e6
    assert 0 < found.layer_s < 10 and 0 <= found.host.step_s < 10
    # Next to other work the fit may give all of a step's share to its sequences, but it never gives nothing to both.
    assert 0 < found.host.step_s + found.host.sequence_s < 10


@pytest.mark.slow
def test_progress_ends_at_the_total(measured: tuple[Calibration, list[tuple[int, int, str]]]) -> None:
    _, notes = measured
    done = [done for done, _, _ in notes]
    assert done == sorted(done) and notes[-1][0] == notes[-1][1] == len(notes)


@pytest.mark.slow
def test_it_predicts_the_embedded_model(measured: tuple[Calibration, list[tuple[int, int, str]]]) -> None:
    cost = step_cost(work_of(read_model("spark").spec, "int8", KVKind.BF16), measured[0])
    one, many = cost.predict([Segment.decode(100)]).seconds, cost.predict([Segment.prefill(0, 512, True)]).seconds
    assert 1e-5 < one < many < 10


def test_too_little_memory_is_said_with_figures() -> None:
    with pytest.raises(OutOfMemory, match="Measuring takes"):
        examine(MeasuredMachine("mark", "x", 1, 10 << 20), time.perf_counter, lambda *note: None)


@pytest.mark.parametrize(
    ("shares", "best", "share"), [([0.0], 1, 0.0), ([0.3, 0.05], 2, 0.05), ([0.3, 0.2, 0.4, 0.0], 2, 0.2)]
)
def test_what_others_disturb_is_measured_again(shares: list[float], best: int, share: float) -> None:
    moments = [Moment(0.0, 0.0, 0.0, 1)]
    for each in shares:  # each takes a second, in which others take that much of the one core
        moments += [moments[-1], replace(moments[-1], at_s=moments[-1].at_s + 1, busy_s=moments[-1].busy_s + each)]
    after = iter(moments[1:])
    calls: list[int] = []

    def work() -> int:
        calls.append(1)
        return len(calls)

    quiet = Quiet(lambda: next(after), lambda what: None)
    assert quiet.measure("x", work) == best and quiet.others_share == pytest.approx(share)
    assert len(calls) == min(len(shares), 3)


def machine_of(folder: Path) -> ThisMachine:
    return ThisMachine.read(1, Machine(cores=2, available_bytes=10**10, cache_folder=folder))


def test_what_is_kept_is_found_again(tmp_path: Path) -> None:
    here = machine_of(tmp_path)
    asked: list[MeasuredMachine] = []

    def how(patient: MeasuredMachine, clock: object, note: object) -> Calibration:
        asked.append(patient)
        return calibration(fingerprint=patient.fingerprint, title=patient.title)

    assert here.kept() is None
    first = here.kept_or_measured(lambda *note: None, how)
    assert here.kept_or_measured(lambda *note: None, how) == first == here.kept()
    assert len(asked) == 1 and asked[0].threads == 1
    again, path = here.measure(lambda *note: None, how)
    assert len(asked) == 2 and path.is_file() and again == first


def test_another_number_of_threads_is_another_machine(tmp_path: Path) -> None:
    machine = Machine(cores=2, available_bytes=10**10, cache_folder=tmp_path)
    marks = {ThisMachine.read(threads, machine).patient.fingerprint for threads in (1, 2, None)}
    assert len(marks) == 2


@pytest.mark.parametrize("weights", ["int8", "int4", "bf16", "f32"])
def test_the_meaning_is_the_formulas(weights: str) -> None:
    found = meaning(calibration(), weights)
    assert found.decode_ceiling_tokens_per_s == pytest.approx(40e9 / (found.weight_bytes + 513 * 32768), rel=0.01)
    assert found.decode_tokens_per_s < found.decode_ceiling_tokens_per_s
    assert f"decode of a 1 B {weights} model cannot pass" in found.words() and "tok/s here" in found.words()


def test_others_are_what_is_left_of_the_cores() -> None:
    before = Moment(10.0, 100.0, 5.0, 2)
    assert others_share(before, Moment(11.0, 101.5, 6.0, 2)) == pytest.approx(0.25)
    assert others_share(before, Moment(11.0, 101.0, 6.0, 2)) == 0
    assert others_share(before, Moment(11.0, 109.0, 5.0, 2)) == 1
    assert others_share(None, before) == others_share(before, None) == others_share(before, before) == 0


def test_a_moment_is_read_where_the_system_tells() -> None:
    first, second = read_moment(), read_moment()
    if first is None or second is None:
        assert first is None and second is None
        return
    assert second.at_s >= first.at_s and second.busy_s >= first.busy_s > 0 and first.cores >= 1


def test_the_stopwatch_takes_calls_in_turn_and_the_median() -> None:
    now, made = [0.0], []

    def call(name: str, seconds: float) -> None:
        made.append(name)
        now[0] += seconds

    watch = Stopwatch(lambda: now[0], least_s=10)
    calls = [lambda: call("a", 1.0), lambda: call("b", 3.0)]
    times, place = watch.times(calls, first=1)
    assert made == ["b", "a", "b", "a", "b"] and times == [3.0, 1.0, 3.0, 1.0, 3.0] and place == 0
    assert watch.seconds([lambda: call("c", 4.0)]) == 4.0
    with pytest.raises(ValueError, match="nothing"):
        usual([])


def test_noise_that_makes_more_rows_quicker_is_taken_out() -> None:
    assert _rising({1: 2.0, 4: 1.5, 8: 3.0}) == {1: 2.0, 4: 2.0, 8: 3.0}


BUSY = 0.5


def disturbed(patient: MeasuredMachine, clock: object, note: object) -> Calibration:
    return calibration(fingerprint=patient.fingerprint, others_share=BUSY)


def quiet_machine(patient: MeasuredMachine, clock: object, note: object) -> Calibration:
    return calibration(fingerprint=patient.fingerprint)


def test_figures_of_a_busy_machine_are_not_kept_and_older_ones_stay(tmp_path: Path) -> None:
    here = machine_of(tmp_path)
    found, path = here.measure(lambda *note: None, disturbed)
    assert found.disturbed and path is None and here.kept() is None
    assert here.kept_or_measured(lambda *note: None, disturbed).disturbed and here.kept() is None
    here.measure(lambda *note: None, quiet_machine)
    here.measure(lambda *note: None, disturbed)
    kept = here.kept()
    assert kept is not None and not kept.disturbed


def test_a_folder_that_takes_nothing_is_an_error_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "doctor").write_text("in the way")
    here = machine_of(tmp_path)
    asked: list[MeasuredMachine] = []

    def how(patient: MeasuredMachine, clock: object, note: object) -> Calibration:
        asked.append(patient)
        return quiet_machine(patient, clock, note)

    with pytest.raises(ConfigError, match="could not be kept"):
        here.measure(lambda *note: None, how)
    assert not asked
    assert not here.kept_or_measured(lambda *note: None, how).disturbed, "a plan needs no file"


@pytest.mark.parametrize(("part_s", "times", "given_up"), [(1.0, 3, False), (8.0, 2, True), (60.0, 1, True)])
def test_a_busy_machine_takes_bounded_time(part_s: float, times: int, given_up: bool) -> None:
    """The busier the machine is, the longer the parts last. After a while nothing is measured again, and then the
    doctor gives up."""
    now, made, said = [0.0], [], []

    def moment() -> Moment:
        return Moment(now[0], BUSY * now[0], 0.0, 1)

    def work() -> None:
        made.append(1)
        now[0] += part_s

    quiet = Quiet(moment, lambda what: None, lambda: now[0], said.append)
    quiet.measure("a part", work)
    assert len(made) == times and len(said) == times - 1
    assert all("again: others took 50% of the cores" in each for each in said)
    if given_up:
        with pytest.raises(MachineBusy, match="figures not kept"):
            for _ in range(10):
                quiet.measure("more", work)
        assert now[0] <= 45 + 2 * part_s
    else:
        for _ in range(10):
            quiet.measure("more", work)


def test_a_measurement_that_nobody_asked_for_gives_up_sooner() -> None:
    """`plan` and `simulate` stood still for 50 s on a busy machine, at each call, and then answered by a guess."""
    now = [0.0]

    def work() -> None:
        now[0] += 4.0

    most_s = examine_on_the_way.keywords["most_s"]
    quiet = Quiet(lambda: Moment(now[0], BUSY * now[0], 0.0, 1), lambda what: None, lambda: now[0], most_s=most_s)
    with pytest.raises(MachineBusy):
        for _ in range(20):
            quiet.measure("a part", work)
    assert now[0] <= 25


def test_time_that_the_host_gave_to_other_machines_is_others(monkeypatch: pytest.MonkeyPatch) -> None:
    read = iter(["cpu 100 0 0 900 0 0 0 0 0 0", "cpu 100 0 0 900 0 0 0 500 0 0"])
    monkeypatch.setattr("twostroke.assembly.settings.env._read_text", lambda path: next(read))
    first, second = read_moment(), read_moment()
    assert first is not None and second is not None
    assert second.busy_s - first.busy_s == pytest.approx(500 / os.sysconf("SC_CLK_TCK"))
