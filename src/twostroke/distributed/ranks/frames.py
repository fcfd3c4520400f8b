"""The frames that the leader of a group sends its members, and their answers: typed frames in MessagePack.

    leader -> member   RankBegin (or RankJoin), then a RankStep for each step, and RankRows where other rows need logits
    leader -> member   RankGiven before a RankStep whose rows show images, as often as needed: numbers of these rows
    leader -> member   RankAsk where a step has failed for a rank that did not come; answered while a step runs, too
    member -> leader   RankReady; RankHere; RankFailed where it ends, RankWaited where another rank was the reason

A frame holds only the changes in page tables since the step before, so that a stream of a long context costs a few
bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.types.decoders import msgpack_decoder

RANKS_VERSION = 6


class RankSight(msgspec.Struct, frozen=True):
    """Tells how image rows come into the model, so that no member needs the files of the encoder. scaled, added: see
    ops/passes/with_given_rows.py. axes: for each number of rotated pairs of a head, the places that rotate them. spans:
    the name of a member of SpanLayers. filler: see runner/step_images.py."""

    scaled: bool
    added: tuple[int, ...]
    axes: dict[int, tuple[int, ...]]
    spans: str
    filler: int | None


class RankBegin(msgspec.Struct, tag=True, frozen=True):
    """The facts that make a process member `rank` of `ranks`. way: tensor or pipeline. options: the engine's options,
    all resolved. pages: the number of pages in each page group's pool. model: a fingerprint of config and weights.

    width: the columns of the widest value that ranks exchange. limit_s: the longest wait for another rank. ticket: the
    token by which connections of this group are recognised. peers: HOST:PORT where each rank listens, empty for the
    leader; no entries for ranks that share memory. key_factors: see assembly/calibrated_keys.py. sight: None where the
    model reads no images.
    """

    version: int
    way: str
    rank: int
    ranks: int
    options: dict[str, str]
    pages: tuple[int, ...]
    state_slots: int
    chunk_tokens: int
    model: str
    width: int
    limit_s: float
    ticket: bytes
    peers: tuple[str, ...] = ()
    key_factors: str = "none"
    sight: RankSight | None = None


class RankJoin(msgspec.Struct, tag=True, frozen=True):
    """The first frame of a connection for numbers, which names its rank. After it there are no frames."""

    ticket: bytes
    rank: int


class RankReady(msgspec.Struct, tag=True, frozen=True):
    """The member has loaded its part of the weights and waits for steps."""

    weight_bytes: int


class RankAsk(msgspec.Struct, tag=True, frozen=True):
    """Asks whether the member is there. The member answers with RankHere."""


class RankHere(msgspec.Struct, tag=True, frozen=True):
    """The member's process runs, whatever its step does."""


class RankWaited(msgspec.Struct, tag=True, frozen=True):
    """The member waited in vain for another rank, and ends."""


class RankFailed(msgspec.Struct, tag=True, frozen=True):
    """The member ends. text: the reason, in words. code: its exit code."""

    text: str
    code: int


class TableChange(msgspec.Struct, frozen=True, array_like=True):
    """The change of a page table: it keeps the first `kept` entries that its sequence had in the step before; `pages`
    follow."""

    kept: int
    pages: list[int]


class RankRow(msgspec.Struct, frozen=True, array_like=True):
    """A sequence of a step (types.plan.PlannedSequence). before: its place in the step before; -1 where it was not in
    that step."""

    before: int
    start: int
    token_ids: list[int]
    sampled_rows: int
    state_slot: int
    second_text: int | None
    tables: list[TableChange]


class RankGiven(msgspec.Struct, tag=True, frozen=True):
    """Image rows of the next step, from its row `first` on. piece: which piece of the image rows it is; see
    runner/step_images.py. numbers: (rows, width) float32, row after row."""

    piece: int
    first: int
    numbers: bytes


class RankShown(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a step that show a part of an image: `count` rows from `first` on. end: see runner/step_images.py."""

    first: int
    count: int
    end: int


class RankPlaced(msgspec.Struct, frozen=True, array_like=True):
    """The places of a sequence's rows, from the step's row `first` on. places: (3, rows) int32."""

    first: int
    places: bytes


class RankStep(msgspec.Struct, tag=True, frozen=True):
    """One step: its sequences, the copies of states and pages that come with it, and its rows that show images."""

    rows: list[RankRow]
    state_copies: tuple[tuple[int, int], ...] = ()
    page_copies: tuple[tuple[int, int, int], ...] = ()
    shown: tuple[RankShown, ...] = ()
    placed: tuple[RankPlaced, ...] = ()


class RankRows(msgspec.Struct, tag=True, frozen=True):
    """Asks for the logits of other rows of the last step."""

    rows: list[int]


Frame = (
    RankBegin | RankJoin | RankReady | RankFailed | RankGiven | RankStep | RankRows | RankAsk | RankHere | RankWaited
)
_encoder, _decoder = msgspec.msgpack.Encoder(), msgpack_decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Returns the frame as bytes, without a length."""
    return _encoder.encode(frame)


def decode(data: bytes) -> Any:
    """Returns the frame that the bytes hold. Raises ValueError for bytes that are no valid frame."""
    try:
        return _decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise ValueError(f"no frame: {error}") from error
