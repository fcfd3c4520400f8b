"""Download progress as numbers: replaces the progress bars that huggingface_hub would draw."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

Progress = Callable[[int, int, str], None]
"""progress(done_bytes, total_bytes, name): is called while files are transferred; the total grows while files are
looked up."""


class Meter:
    """Counts the bytes that are done and the bytes in all, of our own transfers and of those that huggingface_hub
    reports through bars."""

    def __init__(self, progress: Progress | None, name: str) -> None:
        self._progress = progress
        self._name = name
        self._lock = threading.RLock()
        self._done_bytes = 0
        self._total_bytes = 0
        self._bars: list[SilentBar] = []

    def expect(self, num_bytes: int) -> None:
        """Adds `num_bytes` to the bytes that must be transferred."""
        with self._lock:
            self._total_bytes += num_bytes

    def add(self, num_bytes: int) -> None:
        """Adds `num_bytes` to the bytes that are done; a negative number means bytes that had to be thrown away."""
        with self._lock:
            self._done_bytes += num_bytes
            self._report()

    def bar_class(self) -> type[SilentBar]:
        """Returns a replacement for tqdm whose byte bars are counted by this meter."""
        meter = self

        class MeteredBar(SilentBar):
            def __init__(self, *args: Any, **kwargs: Any) -> None:
                super().__init__(*args, **kwargs)
                if self.unit == "B":
                    meter._bars.append(self)

            def update(self, n: float | None = 1) -> None:
                with meter._lock:
                    SilentBar.update(self, n)
                    if self.unit == "B":
                        meter._report()

        return MeteredBar

    def _report(self) -> None:
        if self._progress is None:
            return
        # Bytes received and bytes written are separate bars of the same files. The bar that is further counts.
        done = self._done_bytes + max((int(bar.n) for bar in self._bars), default=0)
        total = self._total_bytes + max((int(bar.total or 0) for bar in self._bars), default=0)
        self._progress(min(done, total), total, self._name)


class SilentBar:
    """The part of a tqdm that huggingface_hub needs, without drawing. `n` of `total` `unit`s are done."""

    _lock = threading.RLock()

    def __init__(
        self, items: Any = None, *args: Any, total: int | None = None, unit: str = "it", **ignored: Any
    ) -> None:
        self.items = items
        self.n: float = ignored.get("initial", 0)
        self.total = total
        self.unit = unit
        self.format_dict: dict[str, Any] = {}

    @classmethod
    def get_lock(cls) -> Any:
        """Returns the lock, as tqdm's protocol asks."""
        return cls._lock

    @classmethod
    def set_lock(cls, lock: Any) -> None:
        """Does nothing, although tqdm's protocol has it: one lock for the process is enough."""

    def update(self, n: float | None = 1) -> None:
        """Adds `n` to the units that are done."""
        self.n += n or 0

    def refresh(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: there is no drawing."""

    set_description = set_description_str = set_postfix = set_postfix_str = reset = clear = refresh

    def close(self) -> None:
        """Does nothing: there is no drawing to remove."""

    def __enter__(self) -> SilentBar:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Any]:
        for item in self.items:
            yield item
            self.update(1)
