"""The messages between fronts (API servers) and replicas: typed frames. distributed/cluster/framing.py turns them into
bytes.

    front -> replica    Hello, Proof, Assignment, PagesAhead, TilesAhead, Cancel, RecordAsked, TileSent
    replica -> front    Hello, Proof, ReplicaFacts, Refused, StepNews (one a step, for all streams), Beat, RecordSent,
                        TileAsked
    replica -> replica  as a front, and PagesAsked, RowsAsked; the answers are PagesSent, RowsSent

The front gives a stream a new number with each Assignment, and ignores events with an older number.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from twostroke.cost.explain.explanation import Explanation
from twostroke.types.event import FinishedEvent
from twostroke.types.images import Canvas, Sheet
from twostroke.types.objectives import NO_OBJECTIVES, LatencyObjectives
from twostroke.types.recorded.verified_guesses import NO_GUESSES, VerifiedGuesses
from twostroke.types.request import Request
from twostroke.types.result import TokenLogprob

WIRE_VERSION = 12
NONCE_BYTES = 32
TILE_PIECE_BYTES = 256 << 10
"""The most bytes of a tile in one frame, so that frames of other requests can be sent between two pieces."""
ReplicaRole = Literal["both", "prefill", "decode", "encode"]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]
TokenIds = tuple[Count, ...]
TileKey = Annotated[bytes, msgspec.Meta(min_length=32, max_length=32)]


class Hello(msgspec.Struct, tag=True, frozen=True):
    """The first frame of both sides. nonce: random bytes with which the other side must prove that it knows the secret.
    """

    version: int
    nonce: bytes


class Proof(msgspec.Struct, tag=True, frozen=True):
    """A keyed hash of the other side's nonce; empty where no secret is set."""

    digest: bytes


class Arithmetic(msgspec.Struct, frozen=True):
    """The facts that decide the bits of results: two replicas with equal values give the same bits for the same
    request. See distributed/cluster/arithmetic.py. key_factors: a digest of the calibrated factors that keys are
    multiplied by, or "none"."""

    ops: int
    weights: str
    kv_format: str
    key_factors: str
    unit: str
    tables: str
    sampling: int
    probe: str


class ReplicaFacts(msgspec.Struct, tag=True, frozen=True):
    """The facts about a replica, which it sends once to each process that connects. instance: a random name for this
    start of its process. model: a fingerprint of config and weights.

    pool_tokens: the number of tokens that its KV pool holds. token_s: the predicted seconds for one token of a prompt.
    role: the kind of its work. `both`: whole requests. `prefill`: only prompts; other replicas generate the answers.
    `decode`: the answers to prompts that others computed, and whole requests. `encode`: only image rows for other
    replicas. page_bytes: the bytes of one page of positions as it is sent; 0 where pages cannot be sent. objectives:
    the latencies that it promises to each request. adapters: their names, by slot. sight: a fingerprint of the rules by
    which images become tiles; empty where it reads no images. keeps_pages: whether it keeps computed prompts on a disk.
    adapter_salts: the salt of each adapter's prefixes, which follows from its contents. image_row_s, image_row_bytes:
    the predicted seconds to encode an image row, and the number of its bytes as it is sent. encoder: the facts that
    decide the bits of image rows; None where it reads no images. A replica of the role `encode` has no language model,
    so its `arithmetic` equals `encoder`.
    """

    name: str
    instance: str
    model: str
    arithmetic: Arithmetic
    page_tokens: int
    pool_tokens: int
    context_tokens: int
    vocab_size: int
    max_sequences: int
    token_s: float
    role: ReplicaRole = "both"
    page_bytes: int = 0
    objectives: LatencyObjectives = NO_OBJECTIVES
    adapters: tuple[str, ...] = ()
    sight: str = ""
    adapter_salts: tuple[str, ...] = ()
    image_row_s: float = 0.0
    image_row_bytes: int = 0
    encoder: Arithmetic | None = None
    keeps_pages: bool = False


class PageSource(msgspec.Struct, array_like=True, frozen=True):
    """A replica that has computed K and V of a request's beginning, or encodes images, and the address on which it
    listens."""

    instance: str
    host: str
    port: int


class WireSpan(msgspec.Struct, array_like=True, frozen=True):
    """An ImageSpan with its tile, but without the tile's pixels. key: the tile's key, as bytes."""

    first: Count
    key: TileKey
    lines: Count
    columns: Count
    width: Count
    height: Count
    skipped: Count
    count: Count
    together: bool
    sheet: Sheet | None = None
    canvas: Canvas | None = None


class KeySpan(msgspec.Struct, array_like=True, frozen=True):
    """The positions [first, first + count) of a prompt, which hold rows of a tile. At these positions the tile's key
    stands for the token id when cached pages are looked up."""

    first: Count
    count: Count
    key: TileKey


class Assignment(msgspec.Struct, tag=True, frozen=True):
    """Asks a replica to compute a request. It has no mask: the replica makes one of its own from the grammar. The
    request's arrival_s is a negative number: minus the seconds since the request came to the front (API server).

    resumed: output tokens that another replica has made already. pages_from: the replica to ask first for missing
    pages; pages that do not come are computed. ahead: the number of an earlier PagesAhead for the same prompt, or 0.
    beams: for a beam search, the numbers of its other beams. promised: True where the replica must promise the first
    token in time or refuse the request. False where it may queue the request without a promise.

    images: the images of the request, which are not in `request` itself; the replica asks for the pixels that it does
    not have. rows_from: the replica to ask for image rows that are not cached; rows that do not come are encoded.
    """

    number: int
    request: Request
    resumed: tuple[int, ...] = ()
    pages_from: PageSource | None = None
    beams: tuple[int, ...] = ()
    ahead: int = 0
    promised: bool = False
    images: tuple[WireSpan, ...] = ()
    rows_from: PageSource | None = None


class PagesAhead(msgspec.Struct, tag=True, frozen=True):
    """Announces a prompt that `source` is computing, and whose stream the receiver will continue. The receiver fetches
    the prompt's pages as they become full, until an Assignment or a Cancel comes.

    images: the positions at which the prompt shows images.
    """

    number: int
    cache_salt: str
    token_ids: TokenIds
    source: PageSource
    images: tuple[KeySpan, ...] = ()


class TilesAhead(msgspec.Struct, tag=True, frozen=True):
    """Asks a replica to encode these tiles for another replica, which will ask for their rows. number: the number of
    that replica's Assignment; a Cancel with this number ends the encodes."""

    number: int
    images: tuple[WireSpan, ...]


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """Ends a stream. No more events of it are sent. An unknown number changes nothing."""

    number: int


class ReplicaLoad(msgspec.Struct, frozen=True):
    """The load of a replica at one moment.

    prefill_tokens: the tokens of prompts that are not computed yet. token_s: the predicted seconds for each of them.
    step_s: the seconds of the last step. page_rate: bytes a second of pages that came from other replicas; 0 before the
    first. encode_s: predicted seconds of the encodes that it has to do for other replicas. disk_waits: whether it still
    has pages to write to its disk. preemptions, query_tokens, hit_tokens, guesses, disk_written_bytes, disk_read_bytes:
    counts since the replica's start.
    """

    running: int = 0
    waiting: int = 0
    pages_free: int = 0
    pages_used: int = 0
    pages_cached: int = 0
    prefill_tokens: int = 0
    token_s: float = 0.0
    step_s: float = 0.0
    preemptions: int = 0
    query_tokens: int = 0
    hit_tokens: int = 0
    waste_tokens: int = 0
    page_rate: float = 0.0
    encode_s: float = 0.0
    guesses: VerifiedGuesses = NO_GUESSES
    disk_waits: bool = False
    disk_written_bytes: int = 0
    disk_read_bytes: int = 0


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The replica does not take an Assignment. retry_after_s: the seconds after which it may take the request; None
    where it never will. may_hold: whether it would queue the request without a promise of its first token, that is,
    take the same Assignment with `promised` False."""

    number: int
    message: str
    retry_after_s: float | None = None
    may_hold: bool = False


class WireToken(msgspec.Struct, array_like=True, tag=0, frozen=True):
    """One output token of a stream. memory: the state of its samplers after it; another replica needs this state to
    continue."""

    number: int
    token_id: int
    logprob: TokenLogprob | None = None
    memory: tuple[float, ...] = ()


class WirePrompt(msgspec.Struct, array_like=True, tag=1, frozen=True):
    """Log probabilities of a stream's next prompt tokens. rows_sum: the sum of rows for a pooled prompt, as in
    PromptEvent."""

    number: int
    logprobs: tuple[TokenLogprob, ...]
    rows_sum: bytes = b""


class WireStart(msgspec.Struct, array_like=True, tag=2, frozen=True):
    """A stream's first step. queue_s: the seconds since its Assignment came. cached_tokens: the number of its prompt's
    tokens that were cached, and so are not computed. disk_tokens: how many of these tokens were read from the replica's
    disk. disk_s: the seconds that the stream waited for the disk."""

    number: int
    queue_s: float
    cached_tokens: int
    disk_tokens: int = 0
    disk_s: float = 0.0


class WireEnd(msgspec.Struct, array_like=True, tag=3, frozen=True):
    """A stream's end. event: the event of the end, with the replica's request id and clock times."""

    number: int
    event: FinishedEvent


class StepNews(msgspec.Struct, tag=True, frozen=True):
    """The results of one step for one front (API server): first the starts of streams that it began, then the events of
    all streams."""

    load: ReplicaLoad
    events: tuple[WireStart | WirePrompt | WireToken | WireEnd, ...]


class Beat(msgspec.Struct, tag=True, frozen=True):
    """A heartbeat: the replica is alive. draining: whether it takes no new work."""

    load: ReplicaLoad
    draining: bool = False


class PagesAsked(msgspec.Struct, tag=True, frozen=True):
    """Asks for the full pages [first, first + count) of a prompt, as far as they are cached. Where none is, the answer
    waits a little for one to be computed.

    Each frame gets one answer, and nothing is sent that was not asked for. token_ids, cache_salt: those of the prompt.
    Only the first frame with a `number` has them; they are empty in later frames. images: the positions at which the
    prompt shows images.
    """

    number: int
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    cache_salt: str = ""
    token_ids: TokenIds = ()
    images: tuple[KeySpan, ...] = ()


class WirePage(msgspec.Struct, array_like=True, frozen=True):
    """K and V of one page of positions in every layer. digest: a keyed hash by which the receiver detects damage, and
    pages of other tokens."""

    data: bytes
    digest: bytes


class PagesSent(msgspec.Struct, tag=True, frozen=True):
    """The answer to the PagesAsked frame with the same `number`. It has fewer pages than were asked for where no more
    are cached. over: True where the sender knows no prompt under this number any more, so no further pages can come."""

    number: int
    pages: tuple[WirePage, ...]
    over: bool = False


class RowsAsked(msgspec.Struct, tag=True, frozen=True):
    """Asks for image rows [first, first + count) of a tile. Where they are not encoded yet, the answer waits a little
    for them. Each frame gets one answer."""

    number: int
    key: TileKey
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]


class RowsSent(msgspec.Struct, tag=True, frozen=True):
    """The answer to RowsAsked: image rows as numbers of 32 bits; none where they are not encoded yet. digest: a keyed
    hash by which the receiver detects damage, and rows of another tile. over: whether the rows will never come."""

    number: int
    first: Count = 0
    data: bytes = b""
    digest: bytes = b""
    over: bool = False


class TileAsked(msgspec.Struct, tag=True, frozen=True):
    """Asks a front (API server) for the bytes [first, first + count) of a tile's pixels. number: the number of an
    Assignment that shows the tile. Each frame gets one answer."""

    number: int
    key: TileKey
    first: Count
    count: Annotated[int, msgspec.Meta(ge=1, le=TILE_PIECE_BYTES)]


class TileSent(msgspec.Struct, tag=True, frozen=True):
    """The answer to TileAsked: a piece of a tile's pixels. It has no data where the Assignment that TileAsked named has
    ended."""

    number: int
    key: TileKey
    first: Count
    data: bytes


class RecordAsked(msgspec.Struct, tag=True, frozen=True):
    """Asks where the time of an ended stream went at this replica. number, group: the number and group of its
    Assignment."""

    number: int
    group: str


class RecordSent(msgspec.Struct, tag=True, frozen=True):
    """Answers RecordAsked. explanation: where the stream's time went at this replica; None where the replica has no
    record of the stream any more."""

    number: int
    explanation: Explanation | None


Frame = (
    Hello
    | Proof
    | ReplicaFacts
    | Assignment
    | PagesAhead
    | TilesAhead
    | Cancel
    | Refused
    | StepNews
    | Beat
    | PagesAsked
    | PagesSent
    | RowsAsked
    | RowsSent
    | RecordAsked
    | RecordSent
    | TileAsked
    | TileSent
)
