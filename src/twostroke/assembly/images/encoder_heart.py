"""Builds an encoder of images without its language model, as a replica of the role `encode` uses it."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType

from msgspec import Struct

from twostroke.assembly.find import FoundEncoder
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu import CpuOps
from twostroke.runner.images.image_encoder import KeptRows
from twostroke.runner.images.shared_rows import EncodedRows


class EncoderHeart(Struct, frozen=True, eq=False):
    """An image encoder without a language model. kept: the loaded encoder, and a cache of the image rows that it has
    made. rows: the same cache with the interface through which other replicas ask for image rows."""

    resolved: Resolved
    kept: KeptRows
    rows: EncodedRows
    closing: ExitStack

    def close(self) -> None:
        """Ends the encoder's threads and frees its memory."""
        self.closing.close()

    def __enter__(self) -> EncoderHeart:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def build_encoder_heart(found: FoundEncoder) -> EncoderHeart:
    """Loads the encoder without reading any tensor of the language model. Raises TwostrokeError."""
    resolved, sight, closing = found.resolver.resolved(), found.sight, ExitStack()
    place = RunPlace(CpuOps(resolved.cpu.cpu_level, resolved.cpu.threads, resolved.cpu.cpus))
    closing.callback(place.close)
    kept = sight.kept(resolved, found.machine, place)
    width = found.spec.hidden_size * (1 + len(sight.encoder.sight.added))
    return EncoderHeart(resolved, kept, EncodedRows.alone(kept, width, kept.cost, time.perf_counter), closing)
