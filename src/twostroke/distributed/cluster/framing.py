"""Writes and reads the messages between a front and its replicas (frames) as bytes: MessagePack, each frame after its
length in four bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator

import msgspec

from twostroke.distributed.wire.frames import Frame
from twostroke.types.reading.decoders import msgpack_decoder

MAX_FRAME_BYTES = 64 << 20
_LENGTH = struct.Struct("<I")


class WireError(ValueError):
    """Bytes from the other side do not follow this protocol."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgpack_decoder(Frame)


def encode(frame: Frame) -> bytes:
    """Returns the frame as bytes, with the length of these bytes before them. Raises WireError for a frame over
    MAX_FRAME_BYTES."""
    body = _encoder.encode(frame)
    if len(body) > MAX_FRAME_BYTES:
        raise WireError(f"a frame of {len(body):,} bytes; at most {MAX_FRAME_BYTES:,} are sent")
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Makes whole frames from bytes as they arrive. most_bytes: the largest frame that is accepted. A frame's announced
    length is checked before the reader waits for its bytes."""

    def __init__(self, most_bytes: int = MAX_FRAME_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held = bytearray()

    def allow_all(self) -> None:
        """Accepts frames of up to MAX_FRAME_BYTES from now on."""
        self._most_bytes = MAX_FRAME_BYTES

    @property
    def partial(self) -> bool:
        """Whether this reader holds a part of a frame whose rest has not come."""
        return bool(self._held)

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yields the frames that are whole now. Raises WireError where the bytes are no frame."""
        self._held += data
        start = 0
        try:
            while len(self._held) - start >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(self._held, start)
                if size > self._most_bytes:
                    raise WireError(f"a frame of {size:,} bytes is announced; at most {self._most_bytes:,} are read")
                start, end = start + _LENGTH.size, start + _LENGTH.size + size
                if len(self._held) < end:
                    start -= _LENGTH.size
                    return
                with memoryview(self._held) as held:  # pages are large, so they are copied only once, into the frame
                    frame = _decoded(held[start:end])
                start = end
                yield frame
        finally:
            del self._held[:start]


def _decoded(body: memoryview) -> Frame:
    try:
        frame: Frame = _decoder.decode(body)
    except Exception as error:  # our own classes check the values inside and raise errors of their own
        raise WireError(f"a frame cannot be read: {error}") from error
    finally:
        body.release()
    return frame
