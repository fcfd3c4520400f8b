"""What one step of the Llama family computes and moves, part by part: the meter's counts without running the program.

The parts are those of `cost.shape.PartPrediction`: `weights` (products of the layers), `head` (logits), `attention`,
and `other` (embedding rows, norms, rope, KV writes). tests/cost holds that they equal what backends/meter counts.

Knows: the order of the ops, their costs, as arithmetic on a ModelSpec.
Must not know: tensors, machines, time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from twostroke.cost.shape import Part
from twostroke.cost.work import Work
from twostroke.spec.formats import KVKind
from twostroke.spec.model import LAYER_ROLES, FormatChoice, MatrixRole, ModelSpec

F32_BYTES = 4
NORM_FLOPS, ROPE_FLOPS, SILU_FLOPS = 4, 3, 5


@dataclass(frozen=True, slots=True)
class StepWork:
    """Work of each part of one step."""

    weights: Work
    head: Work
    attention: Work
    other: Work

    @property
    def total(self) -> Work:
        """The sum of the parts."""
        return self.weights + self.head + self.attention + self.other


NOTHING = StepWork(Work(), Work(), Work(), Work())


class SegmentCounts(NamedTuple):
    """What a step's segments add up to. rows: new tokens. logit_rows: rows that need logits. decodes: sequences of one.

    pairs: visible positions, added over rows and layers. positions: cached positions read, added over layers. Both
    apart for sequences of one new row (decode) and of more; chunks: (rows, pairs) of each of the latter.
    """

    rows: int
    logit_rows: int
    decodes: int
    decode_pairs: int
    decode_positions: int
    chunk_positions: int
    chunks: tuple[tuple[int, int], ...]

    @property
    def pairs(self) -> int:
        """Of all rows."""
        return self.decode_pairs + sum(pairs for _, pairs in self.chunks)

    @property
    def positions(self) -> int:
        """Of all sequences."""
        return self.decode_positions + self.chunk_positions


def visible_positions(start: int, num_tokens: int, window: int) -> int:
    """Sum over positions [start, start + num_tokens) of the positions each sees; window 0 sees all."""
    end = start + num_tokens
    if window == 0 or end <= window:
        return num_tokens * (start + end + 1) // 2
    full = max(start, window - 1)  # positions from here on see `window`
    return (full - start) * (start + full + 1) // 2 + (end - full) * window


def kv_positions(start: int, num_tokens: int, window: int) -> int:
    """Cached positions that these rows read, each once."""
    end = start + num_tokens
    return min(end, window + num_tokens - 1) if window else end


def _seen_by_each(starts: Sequence[int], window: int) -> int:
    """Sum over sequences with one new row of the positions it sees."""
    return sum([min(start + 1, window) for start in starts]) if window else sum(starts) + len(starts)


class WorkCounter:
    """Counts for one model in one choice of formats; a step takes microseconds.

    windows: (window, layers that have it). pair_flops: FLOPs of one row and visible position in one layer.
    kv_position_bytes: K and V of one position in one layer. layer_heads, layer_query_heads: of all layers together.
    """

    def __init__(self, spec: ModelSpec, format_for: FormatChoice, kv_kind: KVKind) -> None:
        self.spec = spec
        self.windows = tuple(Counter(spec.windows).items())
        self.layer_heads = spec.num_layers * spec.num_kv_heads
        self.layer_query_heads = spec.num_layers * spec.num_heads
        self.kv_position_bytes = spec.num_kv_heads * kv_kind.token_bytes(spec.head_dim)
        self.pair_flops = 4 * spec.num_heads * spec.head_dim
        self._layer_row, self._layer_bytes = self._layers(format_for)
        table = format_for(MatrixRole.EMBEDDING)
        table_bytes = table.total_bytes(*spec.matrix_shape(MatrixRole.EMBEDDING))
        head = table if spec.tied_embeddings else format_for(MatrixRole.HEAD)
        self._head_bytes = head.total_bytes(*spec.matrix_shape(MatrixRole.HEAD))
        self._embed_row_bytes = table_bytes // spec.vocab_size
        self._norm_bytes = F32_BYTES * spec.num_layers * (2 * spec.hidden_size + 2 * spec.head_dim * spec.qk_norm)
        self._other_row = self._others()

    def step(self, segments: Sequence[Part]) -> StepWork:
        """Work of a step with these segments; nothing where there are none."""
        return self.work(self.count(segments)) if segments else NOTHING

    def work(self, counts: SegmentCounts) -> StepWork:
        """Work of a step that adds up to `counts`."""
        return StepWork(
            self.weights(counts.rows), self.head(counts.logit_rows), self.attention(counts), self.other(counts)
        )

    def count(self, segments: Sequence[Part]) -> SegmentCounts:
        """One pass over the segments; a quarter of a microsecond for each."""
        rows = logit_rows = chunk_positions = 0
        starts: list[int] = []  # of those with one new row
        chunks: list[tuple[int, int]] = []
        windows = self.windows
        for segment in segments:
            start, num_tokens = segment.start, segment.num_tokens
            rows += num_tokens
            logit_rows += segment.samples + segment.scored
            if num_tokens == 1:
                starts.append(start)
                continue
            pairs = 0
            for window, layers in windows:
                pairs += layers * visible_positions(start, num_tokens, window)
                chunk_positions += layers * kv_positions(start, num_tokens, window)
            chunks.append((num_tokens, pairs))
        seen = sum([layers * _seen_by_each(starts, window) for window, layers in windows])
        return SegmentCounts(rows, logit_rows, len(starts), seen, seen, chunk_positions, tuple(chunks))

    def count_beside(self, starts: Sequence[int], segments: Sequence[Part]) -> SegmentCounts:
        """What `count` says of these segments and of one row, which samples, at each of starts."""
        found, decodes = self.count(segments), len(starts)
        seen = sum([layers * _seen_by_each(starts, window) for window, layers in self.windows])
        return SegmentCounts(
            found.rows + decodes,
            found.logit_rows + decodes,
            found.decodes + decodes,
            found.decode_pairs + seen,
            found.decode_positions + seen,
            found.chunk_positions,
            found.chunks,
        )

    def decode_counts(self, starts: Sequence[int], steps: int) -> Iterator[SegmentCounts]:
        """What `count` says of `steps` steps in a row with one new row of each sequence, from `starts` on."""
        rows = len(starts)
        for seen in self.decode_positions(starts, steps):
            yield SegmentCounts(rows, rows, rows, seen, seen, 0, ())

    def decode_positions(self, starts: Sequence[int], steps: int) -> Iterator[int]:
        """The positions that each of these steps sees, and reads, in all layers."""
        seen = 0
        # A sequence sees one position more in each step, until it sees a whole window.
        growing = 0
        full: dict[int, int] = {}
        for window, layers in self.windows:
            seen += layers * _seen_by_each(starts, window)
            if not window:
                growing += layers * len(starts)
                continue
            for start in starts:
                if start + 1 < window:
                    growing += layers
                    full[window - start - 1] = full.get(window - start - 1, 0) + layers
        for step in range(1, steps + 1):
            yield seen
            seen += growing
            if step in full:
                growing -= full[step]

    def weights(self, rows: int) -> Work:
        """The four products of every layer over `rows` rows; weights are read once."""
        flops, activation_bytes = self._layer_row
        return Work(flops * rows, weight_bytes=self._layer_bytes, activation_bytes=activation_bytes * rows)

    def head(self, logit_rows: int) -> Work:
        """The product with the head; nothing where no row samples."""
        spec = self.spec
        if not logit_rows:
            return Work()
        flops = 2 * logit_rows * spec.vocab_size * spec.hidden_size
        moved = F32_BYTES * logit_rows * (spec.vocab_size + spec.hidden_size)
        return Work(flops, weight_bytes=self._head_bytes, activation_bytes=moved)

    def attention(self, counts: SegmentCounts) -> Work:
        """Scores and weighted sums of all layers; each sequence's K and V are read once in a layer."""
        moved = 2 * F32_BYTES * counts.rows * self.spec.query_size * self.spec.num_layers
        kv_bytes = counts.positions * self.kv_position_bytes
        return Work(counts.pairs * self.pair_flops, kv_bytes=kv_bytes, activation_bytes=moved)

    def other(self, counts: SegmentCounts) -> Work:
        """Embedding rows, norms, head norms, rope, KV writes, the rows that need logits."""
        row, hidden = self._other_row, self.spec.hidden_size
        rows, selected = counts.rows, counts.logit_rows
        final_norm = F32_BYTES * hidden if selected else 0
        return Work(
            row.flops * rows + NORM_FLOPS * hidden * selected,
            row.weight_bytes * rows + self._norm_bytes + final_norm,
            row.kv_bytes * rows,
            row.activation_bytes * rows + 2 * 2 * F32_BYTES * hidden * selected,
        )

    def _layers(self, format_for: FormatChoice) -> tuple[tuple[int, int], int]:
        """((FLOPs, activation bytes) of one row, weight bytes), all layers."""
        spec = self.spec
        flops = elements = weight_bytes = 0
        for role in LAYER_ROLES:
            rows, columns = spec.matrix_shape(role)
            flops += 2 * rows * columns
            elements += rows + columns
            weight_bytes += format_for(role).total_bytes(rows, columns)
        # O and DOWN add to the residual stream: one addition and one more read an element.
        flops += 2 * spec.hidden_size
        elements += 2 * spec.hidden_size
        # GATE_UP writes half of what it multiplies.
        flops += SILU_FLOPS * spec.intermediate_size
        elements -= spec.intermediate_size
        layers = spec.num_layers
        return (flops * layers, F32_BYTES * elements * layers), weight_bytes * layers

    def _others(self) -> Work:
        """One row's embedding, norms, rope and KV write; norm weights are left out, they are read once."""
        spec, layers = self.spec, self.spec.num_layers
        normed = 2 * spec.hidden_size + (spec.query_size + spec.kv_size if spec.qk_norm else 0)
        rotated = (spec.num_heads + spec.num_kv_heads) * spec.rope.rotary_dim
        layer_bytes = 2 * F32_BYTES * (normed + rotated + spec.kv_size)
        return Work(
            layers * (NORM_FLOPS * normed + ROPE_FLOPS * rotated),
            self._embed_row_bytes,
            layers * self.kv_position_bytes,
            layers * layer_bytes + F32_BYTES * spec.hidden_size,
        )
