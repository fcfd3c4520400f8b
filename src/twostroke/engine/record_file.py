"""`--trace FILE`: step records as JSON lines, written while the engine runs.

Lines go to FILE.PID.partial, which takes FILE's place when it is whole: a partly written file never replaces a good
one. After a crash the partial file is still there and can be read.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from twostroke.cost.history.record_json import Record, header_line, record_line
from twostroke.types.errors import ConfigError


class RecordFile:
    """Writes records; called from the thread that steps. A disk that is full ends the file, not the engine."""

    def __init__(self, path: Path, cost_source: str, report: Callable[[str], None]) -> None:
        """Raises ConfigError when the folder takes no file. report: called once when writing fails later."""
        self._path = path
        self._partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        self._report = report
        self._file: TextIO | None = None
        try:
            if path.is_dir():
                raise IsADirectoryError(0, "It is a folder")
            if path.exists() and not path.is_file():
                raise OSError(0, "It is no ordinary file, and the trace would replace it")
            self._file = self._partial.open("w", encoding="utf-8")
            self._file.write(header_line(cost_source))
        except OSError as error:
            raise ConfigError(
                f"The trace {path} cannot be written.",
                why=f"{error.strerror or error}.",
                fix="Give a file in a folder that exists and can be written to.",
            ) from None

    def write(self, record: Record) -> None:
        """Write a record as one line."""
        if self._file is None:
            return
        try:
            self._file.write(record_line(record))
        except OSError as error:
            self._give_up(error)

    def close(self) -> None:
        """Put the whole file in its place. A second call changes nothing."""
        if self._file is None:
            return
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            self._partial.replace(self._path)
            self._file = None
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                file.close()
        self._report(f"the trace {self._path} is incomplete: {error.strerror or error}; it is in {self._partial.name}")
