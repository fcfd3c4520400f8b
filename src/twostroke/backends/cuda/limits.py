"""Tells which programs the CUDA backend can run, and how much scratch memory its kernels take."""

from __future__ import annotations

from collections.abc import Iterator

from twostroke.backends.cuda import library as native
from twostroke.ops.attention.attention import Attention
from twostroke.ops.attention.entry_select import EntrySelect
from twostroke.ops.attention.entry_write import EntryWrite
from twostroke.ops.attention.index_select import IndexSelect
from twostroke.ops.attention.placed_attention import PlacedAttention
from twostroke.ops.attention.span_attention import SpanAttention
from twostroke.ops.products.experts import Experts
from twostroke.ops.products.feed_forward import FeedForward
from twostroke.ops.products.linear_silu import LinearSilu
from twostroke.ops.program.op import FormatChoice
from twostroke.ops.program.program import Program
from twostroke.ops.program.values import LatentKV, PagedKV, Weight
from twostroke.types.spec.formats import WeightFormat

MOST_HEAD_DIM = 512
"""The most elements of a head: kMostDim of csrc/cuda/include/twostroke/cuda/arguments.h."""
MOST_LATENT_DIM = 1024
"""The most elements of a latent and the rotary part of its key together: kMostLatent of the C++ code."""
ROWS_AT_ONCE = 2048
"""The most rows of activations that a product keeps in scratch memory at a time: kRowsAtOnce."""
GATED_ROWS = 512
"""The most rows whose gate and up halves a gated product keeps in scratch memory at a time: kGatedRows."""
PROMPT_GROUPS = (128, 256)
"""Sizes of groups of int8 and int4 weights, in columns. For these sizes, rows of activations are padded to whole groups
when they are rounded to int8."""
FIRST_ROWS = 64
"""The most rows at the first positions of sequences that one product computes: kMostFirst. Such a row is rounded to two
int8 codes, the second for the rounding error."""
TILED_PAIRS = 4096
"""The most pairs of a row and an expert that `experts` computes at a time where it sorts them by expert: kTiledPairs.
"""
TILE_ROWS, WHOLE_TILES = 64, 128
"""TILE_ROWS: the rows of a tile, which belong to one expert (kNarrowTokens). WHOLE_TILES: the rows of all tiles
together are rounded up to a multiple of this number (kTileTokens)."""
PAIRS_AT_ONCE = 128
"""The most pairs of a row and an expert that `experts` computes at a time where it does not sort them: kPairsAtOnce."""
SAMPLED_AT_ONCE = 64
"""The most rows of logits that sampling keeps in scratch memory at a time: kRowsAtOnce of csrc/cuda/host/sample.cpp."""
PART_TOKENS = 4096
"""Sampling divides a row of logits into parts of this many tokens: kThreads * kPartTokens."""
PART_GROUPS = 64
"""Sampling divides a part of a row of logits into this many groups, and keeps the likeliest token of each: kPartGroups.
"""
STEPS = 2048
"""The number of bins into which top-p sampling sorts the tokens of a row by weight (kSteps in csrc/cuda). The sums of
the weights in the bins tell in which bin the last token lies that top-p keeps."""
ASKED_BYTES = 2 << 20
"""The bytes that a block of inputs reserves for the inputs of sampling, such as lists of tokens and masks."""
SELECT_ROWS = 16
"""The number of rows whose scores index_select and entry_select hold at a time: kSelectRows of
csrc/cuda/host/launches/latents.cpp."""
TILE = 64
"""How many positions attention computes together. index_select and entry_select score as many positions, or entries,
together."""
SEGMENT = 512
"""How many positions a segment has. Attention merges the sums of segments in order: kSegment."""
PARTIAL_BYTES = 32 << 20
"""The most bytes of partial results and scores that attention holds at once, unless those of one tile of rows are
more: kPartialBytes of csrc/cuda/host/launches/attention.cpp."""
TILE_COLUMNS = 16
"""The most queries (one row and one query head each) that a thread block of attention computes over K and V in f32 or
bf16. All of them read the same KV head: kFloatColumns."""
SCORE_COLUMNS = 8
"""How many queries (one row and one query head each) a thread block of attention computes over K and V in int8 or int4:
kWholeColumns."""
ROW_TOTALS = 16
"""The number of partial sums of softmax weights that attention keeps for a row, a query head and a segment of
positions. Each of 16 lanes adds one of them: kRowTotals."""
SCRATCH_PART = 256
"""The size of each part of the scratch memory is a multiple of this many bytes."""
MOST_PARTS = 16
"""The most arrays in the scratch memory of one op. Each is rounded up to a multiple of SCRATCH_PART bytes."""


def lacking(program: Program) -> str | None:
    """Returns a sentence with the parts of a program that have no kernels; None where all parts have one. A backend
    that is not built counts as complete, because opening a device raises the error for that."""
    if native.missing_parts(native.LIBRARY_FOLDER):
        return None
    ops = sorted({call.NAME for call in program.calls} - native.cuda_op_numbers(native.LIBRARY_FOLDER).keys())
    if ops:
        return f"It has no kernels for {', '.join(ops)}."
    return next((reason for kind in _of_positions(program) if (reason := _too_wide(kind)) is not None), None)


def _of_positions(program: Program) -> Iterator[PagedKV]:
    """Yields the kinds of caches whose pages hold K and V or latents. Caches of entries, which stand for several
    positions each, are left out: their kernels read entries of any size."""
    entries = {call.layer for call in program.calls if isinstance(call, EntryWrite)}
    for cache in program.caches:
        if isinstance(cache.kind, PagedKV) and cache not in entries:
            yield cache.kind


def _too_wide(kind: PagedKV) -> str | None:
    if isinstance(kind, LatentKV):
        sizes = ((kind.head_dim, "latents with turned keys", MOST_LATENT_DIM), (kind.v_dim, "latents", MOST_HEAD_DIM))
    else:
        sizes = ((kind.head_dim, "heads", MOST_HEAD_DIM), (kind.v_dim, "heads", MOST_HEAD_DIM))
    wide = ((size, what, most) for size, what, most in sizes if size > most)
    return next((f"Its {what} have {size} dimensions, more than {most}." for size, what, most in wide), None)


def scratch_bytes(program: Program, format_for: FormatChoice, context_tokens: int) -> int:
    """Returns the most bytes that the kernels of one op need in addition to a step's values. Ops run one after the
    other, so they share this memory."""
    return max(_sizes(program, format_for, context_tokens), default=0) + MOST_PARTS * SCRATCH_PART


def _sizes(program: Program, format_for: FormatChoice, context_tokens: int) -> Iterator[int]:
    for weight in program.weights:
        yield ROWS_AT_ONCE * _rounded(weight, format_for(weight)) + _first(weight, format_for(weight))
    for call in program.calls:
        if isinstance(call, LinearSilu | FeedForward):
            weight = call.gate_up if isinstance(call, FeedForward) else call.weight
            rounded, first = _rounded(weight, format_for(weight)), _first(weight, format_for(weight))
            yield GATED_ROWS * (rounded + 4 * weight.rows) + first
        elif isinstance(call, Experts):
            yield _pairs(call.routes.width // 2) * _of_pair(call, format_for)
            if all(format_for(bank).group for bank in (call.gate_up, call.down)):
                yield _of_tiles(call, format_for)
        elif isinstance(call, IndexSelect):
            yield _scores(context_tokens)
        elif isinstance(call, EntrySelect):
            yield _scores(-(-context_tokens // call.rate))
        elif isinstance(call, Attention | PlacedAttention | SpanAttention):
            yield _partials(call, context_tokens)


def _partials(call: Attention | PlacedAttention | SpanAttention, context_tokens: int) -> int:
    """Returns the scratch bytes of an attention op: the partial results and the scores of one tile of rows for all
    segments of the context, but at least PARTIAL_BYTES. The number of segments is rounded up to a power of two."""
    segments = 1 << (max(-(-context_tokens // SEGMENT), 1) - 1).bit_length()
    kind, heads = call.layer.kind, call.q.shape[0]
    if not isinstance(kind, PagedKV):
        return 0
    columns = -(-heads // kind.kv_heads // SCORE_COLUMNS) * SCORE_COLUMNS * kind.kv_heads
    of_tile = max(heads, TILE_COLUMNS * kind.kv_heads) * (ROW_TOTALS + kind.value_dim + 1) + columns * SEGMENT
    return max(PARTIAL_BYTES, 4 * segments * of_tile)


def _scores(keys: int) -> int:
    """Returns the bytes of the float scores of SELECT_ROWS rows against `keys` keys, rounded up to whole tiles of keys.
    """
    return 4 * SELECT_ROWS * -(-keys // TILE) * TILE


def _rounded(weight: Weight, weight_format: WeightFormat) -> int:
    """Returns the bytes of one row of activations in int8, with a scale and a correction for each group. Weights that
    keep a file's codes also need a sum and a correction for each block of columns."""
    if not weight_format.group:
        return 0
    padded = weight_format.padded_columns(weight.columns)
    groups = -(-padded // weight_format.activation_columns)
    kind = weight_format.kind
    padded = groups * weight_format.group if weight_format.group in PROMPT_GROUPS and not kind.is_stored else padded
    return padded + 8 * groups + (8 * padded // kind.step_columns if kind.is_stored else 0)


def _first(weight: Weight, weight_format: WeightFormat) -> int:
    """Returns the scratch bytes of a product of FIRST_ROWS rows, each of which is rounded to two int8 codes: one for
    the row, and one for its rounding error. For each code there are a float row, the rounded row and a row of the
    product; for each row there is one result. The rounded rows are padded to whole tiles."""
    if not weight_format.group:
        return 0
    padded, codes = weight_format.padded_columns(weight.columns), 2 * FIRST_ROWS
    rounded = max(codes, WHOLE_TILES) * _rounded(weight, weight_format)
    return rounded + 4 * codes * (padded + weight.rows) + 4 * FIRST_ROWS * weight.rows


def _pairs(chosen: int) -> int:
    """Returns how many pairs of a row and an expert are computed at once: at most PAIRS_AT_ONCE, but at least all
    experts of one row. chosen: the number of experts that a row chooses."""
    return max(PAIRS_AT_ONCE // chosen, 1) * chosen


def _of_tiles(call: Experts, format_for: FormatChoice) -> int:
    """Returns the scratch bytes of an `experts` op whose pairs of a row and an expert are sorted by expert. The pairs
    of each expert begin with a new tile of rows."""
    chosen, up, down = call.routes.width // 2, call.gate_up, call.down
    pairs = max(TILED_PAIRS // chosen, 1) * chosen
    places = -(-(pairs + min(up.experts, pairs) * (TILE_ROWS - 1)) // WHOLE_TILES) * WHOLE_TILES
    rounded = max(_rounded(up, format_for(up)), _rounded(down, format_for(down)))
    return 12 * pairs + 4 * up.experts + places * (8 + 4 * (up.rows + down.rows) + rounded)


def _of_pair(call: Experts, format_for: FormatChoice) -> int:
    """Returns the scratch bytes of one pair of a row and an expert. They hold the expert's number and weight, the row,
    the results of the expert's two products, and the larger one of their rounded inputs."""
    up, down = call.gate_up, call.down
    rounded = max(_rounded(up, format_for(up)), _rounded(down, format_for(down)))
    return 8 + 4 * (up.columns + up.rows + down.rows) + rounded


def sampling_bytes(vocabulary: int) -> int:
    """Returns the bytes of device memory that sampling needs for SAMPLED_AT_ONCE rows of logits. A row has its changed
    logits (float32), and 8 bytes for each of STEPS bins. It has 8 bytes for each part of PART_TOKENS tokens and for
    each of the PART_GROUPS groups of a part, twice: for the logits before and after changes. The requests and the
    results of all rows are added; a result is less than twice as long as its request."""
    of_row = 4 * vocabulary + 2 * 8 * -(-vocabulary // PART_TOKENS) * (PART_GROUPS + 1) + 8 * (STEPS + 1) + SCRATCH_PART
    return SAMPLED_AT_ONCE * of_row + 3 * ASKED_BYTES
