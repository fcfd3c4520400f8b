"""The connection between the leader and one member: frames, one after the other, each after its length.

Both sides first prove that they know the cluster's secret, by a keyed hash of the other side's nonce, as an API server
and a replica do.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading

from twostroke.distributed.ranks.frames import Frame, decode, encode

NONCE_BYTES, DIGEST_BYTES = 32, 32
MOST_FRAME_BYTES = 256 << 20
GREETING_S = 10.0
_LENGTH = struct.Struct("<I")


class RankLineLost(ConnectionError):
    """The other side is gone, or does not follow this protocol."""


class RankLine:
    """The connection to the other side; it owns the socket. `send` may be called from one thread while another thread
    is in `receive`, and `end` and `close` from any thread. `close` waits for these calls, so none uses a closed
    descriptor."""

    def __init__(self, sock: socket.socket) -> None:
        if sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _notice_dead_machines(sock)
        sock.settimeout(None)
        self.sock = sock
        self._sending, self._receiving, self._ending = threading.Lock(), threading.Lock(), threading.Lock()

    def prove(self, secret: bytes, leads: bool) -> None:
        """Exchanges nonces and their keyed hashes with the other side. Raises RankLineLost where the other side does
        not know the secret."""
        own, other = (b"leader", b"member") if leads else (b"member", b"leader")
        nonce = secrets.token_bytes(NONCE_BYTES)
        self.sock.settimeout(GREETING_S)
        try:
            self._write(nonce)
            self._write(_digest(secret, own, self._read(NONCE_BYTES)))
            if not hmac.compare_digest(self._read(DIGEST_BYTES), _digest(secret, other, nonce)):
                raise RankLineLost("the other side does not know the cluster's secret")
        finally:
            self.sock.settimeout(None)

    def send(self, frame: Frame) -> None:
        """Sends a frame, and waits until the system has taken all its bytes. Raises RankLineLost."""
        data = encode(frame)
        with self._sending:
            self._write(_LENGTH.pack(len(data)) + data)

    def receive(self) -> Frame:
        """Waits for the next frame and returns it. Raises RankLineLost where the connection ends, even in an orderly
        way."""
        with self._receiving:
            (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
            if length > MOST_FRAME_BYTES:
                raise RankLineLost(f"a frame of {length:,} bytes")
            data = self._read(length)
        try:
            frame: Frame = decode(data)
        except ValueError as error:
            raise RankLineLost(str(error)) from error
        return frame

    def end(self) -> None:
        """Ends the connection for both sides: a `receive` that waits raises RankLineLost. Any thread may call it, even
        twice."""
        with self._ending, contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Ends the connection, and closes the socket when the calls of other threads have returned. Closing twice is
        harmless."""
        self.end()
        with self._receiving, self._sending, self._ending, contextlib.suppress(OSError):
            self.sock.close()

    def _write(self, data: bytes) -> None:
        try:
            self.sock.sendall(data)
        except OSError as error:
            raise RankLineLost(f"the line is gone: {error}") from error

    def _read(self, count: int) -> bytes:
        found = bytearray()
        while len(found) < count:
            try:
                data = self.sock.recv(min(count - len(found), 1 << 20))
            except OSError as error:
                raise RankLineLost(f"the line is gone: {error}") from error
            if not data:
                raise RankLineLost("the other side has ended")
            found += data
        return bytes(found)


def _notice_dead_machines(sock: socket.socket) -> None:
    """Turns on TCP keepalive, so that a machine that is gone without notice is found within a minute, although an idle
    group sends nothing for hours."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _digest(secret: bytes, side: bytes, nonce: bytes) -> bytes:
    return hashlib.blake2b(side + nonce, key=secret, digest_size=DIGEST_BYTES).digest()
