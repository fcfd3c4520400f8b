"""The frames that the leader of a group sends its members, and their answers: typed frames in MessagePack.

    leader -> member   RankBegin (or RankJoin), then a RankStep for each step, and RankRows where other rows need logits
    leader -> member   RankGiven before a RankStep whose rows show images, as often as needed: values of these rows
    leader -> member   RankAsk where a step failed because a rank did not join an exchange: does the member still run?
    member -> leader   RankReady; RankHere answers RankAsk, even during a step; RankFailed where the member ends;
                       RankWaited where it ends because another rank did not join an exchange

A frame holds only the changes in page tables since the step before, so that a stream of a long context costs a few
bytes.
"""

from __future__ import annotations

from typing import Any

import msgspec

from twostroke.types.reading.decoders import msgpack_decoder

RANKS_VERSION = 6


class RankSight(msgspec.Struct, frozen=True):
    """How image rows come into the model, so that no member needs the encoder's files. scaled: whether the factor of
    the embedding is applied to image rows too. added: the layers after which further image values are added. axes:
    which axis of an image position (time, height, width) rotates each pair of a head; the key is the number of rotated
    pairs. spans: the layers in which the rows of an image see each other, as the name of a member of SpanLayers.
    filler: the token id of image rows; None for the token id in the prompt."""

    scaled: bool
    added: tuple[int, ...]
    axes: dict[int, tuple[int, ...]]
    spans: str
    filler: int | None


class RankBegin(msgspec.Struct, tag=True, frozen=True):
    """The leader's first frame: the facts that make a process member `rank` of `ranks`. way: the kind of parallelism,
    tensor or pipeline. options: the engine's options, with every "auto" replaced by its value. pages: the number of
    pages in each page group's pool. model: a fingerprint of config and weights.

    width: the columns of the widest value that ranks exchange. limit_s: the longest wait for another rank. ticket: the
    token by which connections of this group are recognised. peers: for each rank, HOST:PORT where it listens, and ""
    for the leader; no entries for ranks that share memory. key_factors: the digest of the factors by which keys are
    scaled, or "none". sight: how image rows come into the model; None where it reads no images.
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
    """The first frame of a connection over which two ranks exchange the values of a step. rank: the rank that connects.
    Raw bytes follow instead of frames."""

    ticket: bytes
    rank: int


class RankReady(msgspec.Struct, tag=True, frozen=True):
    """The member has loaded its part of the weights and waits for steps."""

    weight_bytes: int


class RankAsk(msgspec.Struct, tag=True, frozen=True):
    """Asks whether the member's process still runs. The member answers with RankHere."""


class RankHere(msgspec.Struct, tag=True, frozen=True):
    """The answer to RankAsk: the member's process runs, even if its step hangs."""


class RankWaited(msgspec.Struct, tag=True, frozen=True):
    """The member ends because another rank did not join an exchange in time."""


class RankFailed(msgspec.Struct, tag=True, frozen=True):
    """The member ends because of an error. text: the error, in words. code: its exit code."""

    text: str
    code: int


class TableChange(msgspec.Struct, frozen=True, array_like=True):
    """The change of a page table since the step before: its first `kept` entries stay, and `pages` follow them."""

    kept: int
    pages: list[int]


class RankRow(msgspec.Struct, frozen=True, array_like=True):
    """A sequence of a step, as in types.plan.PlannedSequence. before: its index among the sequences of the step before;
    -1 where it was not in that step."""

    before: int
    start: int
    token_ids: list[int]
    sampled_rows: int
    state_slot: int
    second_text: int | None
    tables: list[TableChange]


class RankGiven(msgspec.Struct, tag=True, frozen=True):
    """The values of image rows of the next step, from the step's row `first` on. In models that add image values after
    some layers, too, each row has several vectors: `piece` is the index of the vectors in this frame. numbers: (rows,
    width) float32."""

    piece: int
    first: int
    numbers: bytes


class RankShown(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a step that show a part of an image: `count` rows from row `first` on. end: each of the rows attends to
    all positions before this one; 0 where each row attends as a text row does."""

    first: int
    count: int
    end: int


class RankPlaced(msgspec.Struct, frozen=True, array_like=True):
    """The rotary positions (time, height, width) of the rows of one sequence that shows images, from the step's row
    `first` on. places: (3, rows) int32."""

    first: int
    places: bytes


class RankStep(msgspec.Struct, tag=True, frozen=True):
    """One step: its sequences, the copies of states and pages to make first, its rows that show images, and their
    rotary positions."""

    rows: list[RankRow]
    state_copies: tuple[tuple[int, int], ...] = ()
    page_copies: tuple[tuple[int, int, int], ...] = ()
    shown: tuple[RankShown, ...] = ()
    placed: tuple[RankPlaced, ...] = ()


class RankRows(msgspec.Struct, tag=True, frozen=True):
    """Makes a member compute the logits of `rows`, further rows of the last step whose logits were not needed
    before."""

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
