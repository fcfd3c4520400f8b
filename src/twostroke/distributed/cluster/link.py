"""One connection that sends and takes frames and never waits. Bytes that cannot be sent now are held, up to a bound.

Any thread may send; one thread receives.

Both sides begin with Hello and Proof: each side proves that it knows the secret by a keyed hash of the other side's
nonce.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import secrets
import selectors
import socket
import threading

from twostroke.distributed.cluster.framing import FrameReader, WireError, encode
from twostroke.distributed.wire.frames import NONCE_BYTES, WIRE_VERSION, Frame, Hello, Proof

READ_BYTES = 1 << 18
MOST_UNSENT_BYTES = 32 << 20
"""The most bytes that may wait for a side that does not read, before the connection is given up."""
GREETING_BYTES = 4096
"""The largest frame that is read before the other side has proven the secret."""


class LinkLost(ConnectionError):
    """The connection is gone, or its bytes do not follow this protocol."""


class FrameLink:
    """Owns the socket of one connection. side: a word that differs between the two sides and is hashed into the proof.
    So a stranger cannot pass the check of the secret by sending a side its own proof back.

    Any error of the system on this socket is raised as a LinkLost of this connection.
    """

    def __init__(self, sock: socket.socket, secret: bytes, side: str, other_side: str) -> None:
        """Sends the first frame, Hello. Raises LinkLost where the connection is gone; the socket then still belongs to
        the caller."""
        try:
            sock.setblocking(False)
            if sock.family in (socket.AF_INET, socket.AF_INET6):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise _gone(error) from error
        self.sock = sock
        self.trusted = False
        self._secret, self._side, self._other_side = secret, side, other_side
        self._nonce = secrets.token_bytes(NONCE_BYTES)
        self._reader = FrameReader(GREETING_BYTES)
        self._room = memoryview(bytearray(READ_BYTES))
        self._unsent = bytearray()
        self._sending = threading.Lock()
        self._greeted = False
        self._selector: selectors.BaseSelector | None = None
        self._watched = 0
        self._data: object = None
        self.send(Hello(WIRE_VERSION, self._nonce))

    def watch(self, selector: selectors.BaseSelector, data: object = None) -> None:
        """Registers the connection with a selector until `close`. The selector's events are passed to `exchange`.
        Raises LinkLost."""
        with self._sending:
            try:
                selector.register(self.sock, self._events, data)
            except OSError as error:
                raise _gone(error) from error
            self._selector, self._watched, self._data = selector, self._events, data

    @property
    def _events(self) -> int:
        return selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)

    @property
    def unsent_bytes(self) -> int:
        """The bytes that wait for the other side to read."""
        return len(self._unsent)

    @property
    def partial(self) -> bool:
        """Whether this link holds a part of a frame whose rest has not come."""
        return self._reader.partial

    def send(self, frame: Frame) -> None:
        """Sends as much of the frame as can be sent now, and holds the rest. Raises LinkLost."""
        data = encode(frame)
        with self._sending:
            self._unsent += data
            if len(self._unsent) > MOST_UNSENT_BYTES:
                raise LinkLost(f"the other side has left {len(self._unsent):,} bytes unread")
            self._flush()

    def _flush(self) -> None:
        """Sends as many unsent bytes as the socket takes now. Raises LinkLost."""
        try:
            while self._unsent:
                sent = self.sock.send(self._unsent)
                del self._unsent[:sent]
        except BlockingIOError:
            pass
        except OSError as error:
            raise _gone(error) from error
        if self._selector is not None and self._watched != self._events:
            try:
                self._selector.modify(self.sock, self._events, self._data)
            except (OSError, KeyError) as error:  # KeyError: the selector forgets a socket whose modify() failed
                raise LinkLost(f"the connection is gone: {error}") from error
            self._watched = self._events

    def exchange(self, events: int) -> list[Frame]:
        """Sends and receives as the selector's `events` allow, and returns frames as `receive` does. Raises LinkLost.
        """
        if events & selectors.EVENT_WRITE:
            with self._sending:
                self._flush()
        return self.receive() if events & selectors.EVENT_READ else []

    def receive(self) -> list[Frame]:
        """Returns the frames that one read of the socket completes. Hello and Proof are handled here and not returned.
        Raises LinkLost."""
        try:
            count = self.sock.recv_into(self._room)
        except BlockingIOError:
            return []
        except OSError as error:
            raise _gone(error) from error
        if not count:
            raise LinkLost("the other side has closed the connection")
        try:
            return [frame for frame in self._reader.feed(self._room[:count]) if not self._greeting(frame)]
        except WireError as error:
            raise LinkLost(f"the other side does not speak this protocol: {error}") from error

    def close(self) -> None:
        """Closes the connection. Closing twice is harmless."""
        with self._sending:
            selector, self._selector = self._selector, None
            if selector is not None:
                with contextlib.suppress(KeyError):  # for the same reason as in _flush
                    selector.unregister(self.sock)
            with contextlib.suppress(OSError):
                self.sock.close()

    def _greeting(self, frame: Frame) -> bool:
        """Handles a frame of the greeting and returns True. Returns False for any other frame."""
        if self.trusted:
            if isinstance(frame, (Hello, Proof)):
                raise LinkLost("the other side greets twice")
            return False
        if isinstance(frame, Hello) and not self._greeted:
            if frame.version != WIRE_VERSION:
                raise LinkLost(
                    f"the other side speaks version {frame.version} of the protocol, this one {WIRE_VERSION}"
                )
            self._greeted = True
            self.send(Proof(self._digest(self._side, frame.nonce)))
            return True
        if isinstance(frame, Proof) and self._greeted:
            if not hmac.compare_digest(frame.digest, self._digest(self._other_side, self._nonce)):
                raise LinkLost("the other side does not know the secret")
            self.trusted = True
            self._reader.allow_all()
            return True
        raise LinkLost("the other side sent something before its greeting")

    def _digest(self, side: str, nonce: bytes) -> bytes:
        return hashlib.blake2b(side.encode() + nonce, key=self._secret, digest_size=32).digest()


def _gone(error: OSError) -> LinkLost:
    return LinkLost(f"the connection is gone: {error}")


def secret_key(text: str | None) -> bytes:
    """Returns a key of 64 bytes from a secret of any length. Without a secret, all sides have the same key."""
    return hashlib.blake2b((text or "").encode()).digest()
