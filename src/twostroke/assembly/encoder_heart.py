"""An encoder of images without its language model: what a replica of the role `encode` computes."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType

from msgspec import Struct

from twostroke.assembly.find import FoundEncoder
from twostroke.assembly.place import RunPlace
from twostroke.assembly.settings.resolver import Resolved
from twostroke.backends.cpu import CpuOps
from twostroke.runner.image_encoder import KeptRows
from twostroke.runner.shared_rows import EncodedRows


class EncoderHeart(Struct, frozen=True, eq=False):
    """kept: the encoder, loaded, with the rows that it has made. rows: what other replicas ask for."""

    resolved: Resolved
    kept: KeptRows
    rows: EncodedRows
    closing: ExitStack

    def close(self) -> None:
        """Give threads back."""
        self.closing.close()

    def __enter__(self) -> EncoderHeart:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()


def build_encoder_heart(found: FoundEncoder) -> EncoderHeart:
    """Load the encoder: no tensor of the language model is read. Raises TwostrokeError."""
    resolved, sight, closing = found.resolver.resolved(), found.sight, ExitStack()
    place = RunPlace(CpuOps(resolved.cpu.cpu_level, resolved.cpu.threads, resolved.cpu.cpus))
    closing.callback(place.close)
    kept = sight.kept(resolved, found.machine, place)
    width = found.spec.hidden_size * (1 + len(sight.encoder.sight.added))
    cost = sight.cost(resolved, found.machine)
    return EncoderHeart(resolved, kept, EncodedRows(kept, width, cost, time.perf_counter), closing)
