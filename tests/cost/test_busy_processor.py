"""Time in which the processor ran another program. The system counts it, the step keeps it, and explain names it."""

from __future__ import annotations

import contextlib
import os
import random
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from twostroke.assembly.machine.run_delay import RunDelay
from twostroke.cost.explain.advice import Options
from twostroke.cost.explain.explanation import CauseKind, words
from twostroke.cost.explain.verdict import Explainer
from twostroke.cost.history.record import StepRecord
from twostroke.cost.history.record_json import from_json, to_json
from twostroke.cost.what_if import WhatIf
from twostroke.models.common.work import work_of
from twostroke.ops.quant.formats import FORMATS
from twostroke.types.spec.formats import KVKind

from .machines import calibration
from .scenarios import explained, warmed
from .virtual import SPEC, Lab, text

DELAYS = (0.0, 0.02, 0.0, 0.5, 0.0, 0.001)


def delayed_lab() -> Lab:
    lab = warmed(random.Random(1))
    left = iter(DELAYS)
    lab.executor.delayed_s = lambda plan: next(left, 0.0)
    lab.request(0, "victim", text(1, 20), 12)
    lab.run()
    return lab


def test_seconds_of_the_delay_are_those_that_were_put_in() -> None:
    lab = delayed_lab()
    found = explained(lab)
    busy = next(cause for cause in found.causes if cause.kind is CauseKind.BUSY)
    assert busy.seconds == pytest.approx(sum(DELAYS))
    assert sum(cause.seconds for cause in found.causes) <= found.e2e_s * 1.001, "no second stands in two causes"
    assert found.parts_s["decode_s"] > sum(DELAYS), "the parts stay as they are: a delay is within its step"
    assert "fewer other programs" in words(found)


def test_a_reader_in_the_engines_thread_is_not_blamed_for_the_processor() -> None:
    """The delay comes between the steps. So the time looks like the reader's, but it was the processor's."""
    lab = warmed(random.Random(3))
    lab.request(0, "victim", text(1, 20), 12)
    waiting = [0.0]

    def between() -> float:
        found, waiting[0] = waiting[0], 0.0
        return found

    execute = lab.executor.execute
    lab.executor.execute = lambda plan: replace(execute(plan), delayed_s=between())  # type: ignore[method-assign]
    while lab._actions or lab.stepper.has_work:
        while lab._actions:
            lab._actions.pop(0)[2]()
        lab.stepper.step()
        lab.clock.now += 0.2
        lab.ledger.away(0.2)
        waiting[0] = 0.2
    causes = {cause.kind: cause.seconds for cause in explained(lab).causes}
    assert causes[CauseKind.BUSY] == pytest.approx(11 * 0.2)
    assert causes.get(CauseKind.CLIENT, 0.0) < 0.1


def test_records_have_the_delay_and_older_files_none() -> None:
    lab = delayed_lab()
    records = [record for record in lab.ledger.history.records() if isinstance(record, StepRecord)]
    seen = [record.delayed_s for record in records if record.delayed_s]
    assert seen == [each for each in DELAYS if each]
    for record in records:
        assert from_json(to_json(record)) == record
        assert record.delayed_s <= record.seconds
    old = {name: value for name, value in to_json(records[-1]).items() if name != "delayed_s"}
    assert from_json(old).delayed_s == 0.0


def test_an_idle_machine_is_not_blamed() -> None:
    lab = warmed(random.Random(2))
    lab.executor.delayed_s = lambda plan: 5e-6  # time that the system takes for itself
    lab.request(0, "victim", text(1, 20), 30)
    lab.run()
    assert CauseKind.BUSY not in {cause.kind for cause in explained(lab).causes}


@pytest.mark.parametrize(("slower", "named"), [(1.0, False), (4.0, True)])
def test_measured_steps_without_a_cause_are_named_too(slower: float, named: bool) -> None:
    """On a virtual machine whose host runs other machines, the system counts nothing, but the machine was measured when
    idle."""
    machine = calibration()
    what_if = WhatIf(partial(work_of, SPEC), FORMATS, "int8", KVKind.BF16, machine)
    lab = Lab()
    lab.executor.cost = what_if.now
    lab.ledger.cost = what_if.now
    for number in range(12):
        lab.request(0.0, f"warm{number}", text(number + 5, 20), 3)
    lab.run()
    lab.zero_s = lab.clock.now
    lab.executor.slower = lambda plan: slower
    lab.request(0, "victim", text(1, 20), 60)
    lab.run()
    (found,) = Explainer(lab.ledger, what_if, Options(512, 16)).explain("victim")
    causes = {cause.kind: cause for cause in found.causes}
    assert (CauseKind.BUSY in causes) == named
    if named:
        assert "longer than the cost model says" in causes[CauseKind.BUSY].text
        assert causes[CauseKind.BUSY].seconds == pytest.approx(0.75 * found.parts_s["decode_s"], rel=0.05)


def test_the_systems_figure_is_read_as_a_difference(tmp_path: Path) -> None:
    file = tmp_path / "schedstat"
    file.write_text("7 1000000000 3\n")
    delay = RunDelay(str(file))
    assert delay() == 0.0, "what was before the first step counts for no request"
    file.write_text("9 1250000000 4\n")
    assert (delay(), delay()) == (pytest.approx(0.25), 0.0)
    file.write_text("nonsense")
    assert delay() == 0.0
    delay.close()
    assert RunDelay(str(tmp_path / "none"))() == 0.0


def figures_open() -> int:
    """The files of the system's figure that this process has open. Other files that it opens and closes do not
    count."""
    found = []
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(os.readlink(path))
    return sum(name.endswith("schedstat") for name in found)


def test_each_thread_has_its_own_figure_and_files_are_given_back() -> None:
    delay = RunDelay()
    before = figures_open()
    found: list[float] = []
    for _ in range(5):
        thread = threading.Thread(target=lambda: found.extend((delay(), delay())))
        thread.start()
        thread.join()
    assert all(each >= 0 for each in found)
    delay.close()
    assert figures_open() == before
