"""This machine as measured: what is kept, or measured now."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from twostroke.assembly.settings.env import Machine, processor_name, read_machine
from twostroke.backends.cpu import best_level, better_level
from twostroke.backends.cpu.calibration_file import check_place, fingerprint, read_calibration, write_calibration
from twostroke.cost.calibration import Calibration
from twostroke.lab.planner.doctor.examine import MeasuredMachine, Note, examine
from twostroke.lab.planner.doctor.meaning import contradictions
from twostroke.types.errors import ConfigError, Contradiction

Examine = Callable[[MeasuredMachine, Callable[[], float], Note], Calibration]


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """What the doctor knows before measuring. level: the instruction-set level of the kernels. better_level: one that
    this CPU runs and that is not built; None where `level` is its best. placing: why there are as many `cores`.
    """

    patient: MeasuredMachine
    level: str
    cores: int
    cache_folder: Path
    better_level: str | None = None
    placing: str = ""

    @classmethod
    def read(cls, threads: int | None = None, machine: Machine | None = None) -> ThisMachine:
        """threads: None takes the cores that this process may use. Raises BackendError where there are no kernels."""
        found = machine or read_machine()
        count, level, name = threads or found.cores, best_level(), processor_name()
        patient = MeasuredMachine(fingerprint(name, level, count), name or "this machine", count, found.available_bytes)
        return cls(patient, level, found.cores, found.cache_folder, better_level(), found.placing.reason)

    def kept(self) -> Calibration | None:
        """The measurement that is kept, if it is of this machine and does not contradict itself."""
        found = read_calibration(self.cache_folder, self.patient.fingerprint)
        return None if found is None or contradictions(found) else found

    def measure(self, note: Note, how: Examine = examine) -> tuple[Calibration, Path | None]:
        """Measure now and keep it; also the file's place, None where other programs disturbed it: then an older
        measurement stays. Raises Contradiction or MachineBusy, and then keeps nothing; ConfigError, before anything is
        measured, where it could not be kept.
        """
        check_place(self.cache_folder)
        calibration = self._examined(note, how)
        return calibration, None if calibration.disturbed else write_calibration(self.cache_folder, calibration)

    def kept_or_measured(self, note: Note, how: Examine = examine) -> Calibration:
        """What is kept; measured where nothing is, and kept where that is possible."""
        kept = self.kept()
        if kept is not None:
            return kept
        calibration = self._examined(note, how)
        if not calibration.disturbed:
            with contextlib.suppress(ConfigError):  # the figures are valid even if they cannot be written
                write_calibration(self.cache_folder, calibration)
        return calibration

    def _examined(self, note: Note, how: Examine) -> Calibration:
        calibration = how(self.patient, time.perf_counter, note)
        wrong = contradictions(calibration)
        if wrong:
            raise Contradiction(
                "The figures of this measurement contradict each other, so they are not kept.",
                why="; ".join(wrong) + ".",
                fix="Run it again when other programs leave the machine alone: twostroke doctor --fresh",
            )
        return calibration
