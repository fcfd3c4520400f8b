"""What a front and a replica say to each other: typed frames in MessagePack, each behind its length in four bytes.

    front -> replica    Hello, Proof, Assignment, Cancel
    replica -> front    Hello, Proof, ReplicaFacts, Refused, StepNews (one a step, for all streams), Beat

The front gives a stream a new number with each Assignment. News of an older number is left out.

Knows: the shapes of frames, their caps.
Must not know: sockets, what is done with a frame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import msgspec

from twostroke.types.request import FinishReason
from twostroke.types.sampling_params import SamplingParams

WIRE_VERSION = 1
MAX_FRAME_BYTES = 64 << 20
NONCE_BYTES = 32
_LENGTH = struct.Struct("<I")


class WireError(ValueError):
    """What the other side sent is not this protocol."""


class Hello(msgspec.Struct, tag=True, frozen=True):
    """The first frame of both sides. nonce: random bytes that the other side must prove the secret with."""

    version: int
    nonce: bytes


class Proof(msgspec.Struct, tag=True, frozen=True):
    """A keyed hash of the other side's nonce; empty where no secret is set."""

    digest: bytes


class Arithmetic(msgspec.Struct, frozen=True):
    """Two replicas with equal values give the same bits for the same request. See cluster/arithmetic.py."""

    ops: int
    weights: str
    kv_format: str
    unit: str
    tables: str
    sampling: int
    probe: str


class ReplicaFacts(msgspec.Struct, tag=True, frozen=True):
    """What a replica is. instance: random, of this start of its process. model: a fingerprint of config and weights.

    pool_tokens: what its KV pool holds. token_s: predicted seconds a token of a prompt.
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


class WireRequest(msgspec.Struct, frozen=True):
    """types.request.Request without what belongs to one process: its mask and its times.

    waited_s: how long ago it came to the front.
    """

    group: str
    prompt_token_ids: tuple[int, ...]
    params: SamplingParams
    seed: int
    max_tokens: int
    end_token_ids: frozenset[int]
    cache_salt: str
    priority: int
    ttft_s: float | None
    itl_s: float | None
    waited_s: float
    speculate: str | None = None


class Assignment(msgspec.Struct, tag=True, frozen=True):
    """Compute a request. resumed: output tokens that another replica has made already."""

    number: int
    request: WireRequest
    resumed: tuple[int, ...] = ()


class Cancel(msgspec.Struct, tag=True, frozen=True):
    """End a stream; nothing more is told of it. An unknown number changes nothing."""

    number: int


class ReplicaLoad(msgspec.Struct, frozen=True):
    """A replica at one moment.

    prefill_tokens: of prompts that are not computed yet. token_s: predicted seconds of each. step_s: of the last step.
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


class Refused(msgspec.Struct, tag=True, frozen=True):
    """The replica does not take a Assignment. retry_after_s: when it may; None where it never will."""

    number: int
    message: str
    retry_after_s: float | None = None


class WireLogprob(msgspec.Struct, array_like=True, frozen=True):
    """types.result.TokenLogprob."""

    token_id: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()


class WireToken(msgspec.Struct, array_like=True, frozen=True):
    """One output token of a stream."""

    number: int
    token_id: int
    logprob: WireLogprob | None = None


class WirePrompt(msgspec.Struct, array_like=True, frozen=True):
    """Log probabilities of a stream's next prompt tokens."""

    number: int
    logprobs: tuple[WireLogprob, ...]


class WireStart(msgspec.Struct, array_like=True, frozen=True):
    """A stream's first step. queue_s: seconds since its Assignment came. cached_tokens: of its prompt, not computed."""

    number: int
    queue_s: float
    cached_tokens: int


class WireEnd(msgspec.Struct, array_like=True, frozen=True):
    """A stream's end."""

    number: int
    reason: FinishReason
    num_output_tokens: int
    num_cached_tokens: int
    num_preemptions: int
    stopped_by: int | None = None
    end_logprob: WireLogprob | None = None
    error: str | None = None
    retry_after_s: float | None = None


class StepNews(msgspec.Struct, tag=True, frozen=True):
    """What one step gave."""

    load: ReplicaLoad
    started: tuple[WireStart, ...] = ()
    prompts: tuple[WirePrompt, ...] = ()
    tokens: tuple[WireToken, ...] = ()
    ended: tuple[WireEnd, ...] = ()


class Beat(msgspec.Struct, tag=True, frozen=True):
    """The replica lives. draining: it takes no new work."""

    load: ReplicaLoad
    draining: bool = False


Frame = Hello | Proof | ReplicaFacts | Assignment | Cancel | Refused | StepNews | Beat
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(Frame)


def encode(frame: Frame) -> bytes:
    """The frame's bytes behind their length. Raises WireError for a frame over MAX_FRAME_BYTES."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(body):,} bytes; at most {MAX_FRAME_BYTES:,} are sent")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Bytes as they come, to whole frames. most_bytes: of one frame, checked before its bytes are waited for."""

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()

    def allow_all(self) -> None:
        """From now on frames of MAX_FRAME_BYTES are read."""
        self._most_bytes = MAX_FRAME_BYTES

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are whole now. Raises WireError where the bytes are no frame."""
        self._held += data
        start = 0
        try:
            while len(self._held) - start >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(self._held, start)
                if size > self._most_bytes:
                    raise WireError(f"a frame of {size:,} bytes is announced; at most {self._most_bytes:,} are read")
                end = start + _LENGTH.size + size
                if len(self._held) < end:
                    return
                body = bytes(self._held[start + _LENGTH.size : end])
                start = end
                yield _decoded(body)
        finally:
            del self._held[:start]


def _decoded(body: bytes) -> Frame:
    try:
        frame: Frame = _decoder.decode(body)
    except Exception as error:  # values inside are checked by classes of ours, which raise errors of their own
        raise WireError(f"a frame cannot be read: {error}") from error
    return frame
