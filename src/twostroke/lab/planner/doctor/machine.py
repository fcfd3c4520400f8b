"""The measurement of this machine: read from the cache, or made now."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from twostroke.assembly.settings.env import Machine, processor_name, read_machine
from twostroke.backends.cpu import best_level, better_level
from twostroke.backends.cpu.calibration_file import check_place, fingerprint, read_calibration, write_calibration
from twostroke.cost.calibration import Calibration
from twostroke.lab.planner.doctor.examine import ON_THE_WAY_S, MeasuredMachine, Note, examine
from twostroke.lab.planner.doctor.meaning import contradictions
from twostroke.types.errors import ConfigError, Contradiction

Examine = Callable[[MeasuredMachine, Callable[[], float], Note], Calibration]
examine_on_the_way = partial(examine, most_s=ON_THE_WAY_S)


@dataclass(frozen=True, slots=True)
class ThisMachine:
    """What the doctor knows before measuring. level: the instruction-set level of the kernels. better_level: a better
    level that this CPU could run but that is not built; None where `level` is the CPU's best. placing: text that tells
    why this number of `cores` is used."""

    patient: MeasuredMachine
    level: str
    cores: int
    cache_folder: Path
    better_level: str | None = None
    placing: str = ""

    @classmethod
    def read(cls, threads: int | None = None, machine: Machine | None = None) -> ThisMachine:
        """Reads what is known of this machine. threads: None takes the cores that this process may use. Raises
        BackendError where there are no kernels."""
        found = machine or read_machine()
        count, level, name = threads or found.cores, best_level(), processor_name()
        patient = MeasuredMachine(fingerprint(name, level, count), name or "this machine", count, found.available_bytes)
        return cls(patient, level, found.cores, found.cache_folder, better_level(), found.placing.reason)

    def kept(self) -> Calibration | None:
        """Returns the stored measurement; None where there is none of this machine, or where it contradicts itself."""
        found = read_calibration(self.cache_folder, self.patient.fingerprint)
        return None if found is None or contradictions(found) else found

    def measure(self, note: Note, how: Examine = examine) -> tuple[Calibration, Path | None]:
        """Measures now and stores the result. Also returns the path of the file; None where other programs disturbed
        the measurement, which is then not stored. Raises Contradiction or MachineBusy, and then stores nothing. Raises
        ConfigError, before anything is measured, where the result could not be stored."""
        check_place(self.cache_folder)
        calibration = self._examined(note, how)
        return calibration, None if calibration.disturbed else write_calibration(self.cache_folder, calibration)

    def kept_or_measured(self, note: Note, how: Examine = examine_on_the_way) -> Calibration:
        """Returns the stored measurement. Where there is none, measures now and stores the result if that is possible.
        A busy machine is given up sooner than by `measure`, because each call would wait again."""
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
