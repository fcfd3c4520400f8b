"""A socket of the file system: no port to choose, and its permissions decide who may use it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from twostroke.system import here
from twostroke.types.errors import ConfigError

UNIX = "unix:"
BACKLOG = 2048
MOST_PATH_BYTES = 107
"""The most bytes of a path, which is the system's own limit: sun_path has 108 bytes."""


@contextmanager
def socket_file(path: str, mode: int) -> Iterator[socket.socket]:
    """Yields a listening socket at this path, which is removed at the end. Raises ConfigError that explains what is
    wrong with the path.

    A file that a killed server left is replaced. Permissions are set before the socket listens, so nobody else connects
    in between.
    """
    place = Path(path).absolute()
    if len(os.fsencode(place)) > MOST_PATH_BYTES:
        raise ConfigError(
            f"--uds {place} is too long.",
            why=f"The system takes at most {MOST_PATH_BYTES} bytes for the path of a socket.",
            fix="Choose a shorter path, such as one in /run or /tmp.",
        )
    _remove_stale(place)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(str(place))
            place.chmod(mode)
            own = _identity(place)
            listener.listen(BACKLOG)
            listener.setblocking(False)
        except OSError as error:
            raise _refused(place, error) from None
        try:
            yield listener
        finally:
            with contextlib.suppress(OSError):
                if _identity(place) == own:  # else the file is the socket of a server that took the place meanwhile
                    place.unlink()


def path_of(listener: socket.socket) -> str | None:
    """Returns the path of a socket of the file system; None for a socket with a port."""
    return str(listener.getsockname()) if here.is_socket_file(listener) else None


def _remove_stale(place: Path) -> None:
    """Remove a socket at which nobody listens. Raises ConfigError for a socket that is in use, and for any other file.
    """
    try:
        if not stat.S_ISSOCK(place.lstat().st_mode):
            raise ConfigError(
                f"--uds {place} is there, and is no socket.",
                why="The server would have to delete that file.",
                fix="Remove it, or choose another path.",
            )
    except OSError:
        return  # nothing is there; when the folder is the fault, bind() reports it
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(place))
        except ConnectionRefusedError:
            with contextlib.suppress(OSError):
                place.unlink()
            return
        except OSError as error:
            raise _refused(place, error) from None
    raise _refused(place, OSError(errno.EADDRINUSE, ""))


def _refused(place: Path, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        return ConfigError(
            f"Cannot listen on {place}: it is taken.",
            why="Another program, perhaps another server of this kind, listens there.",
            fix="Stop it, or choose another path for --uds.",
        )
    return ConfigError(
        f"Cannot listen on {place}.",
        why=f"{error.strerror}.",
        fix="Give --uds a path in a folder that is there and that this user may write.",
    )


def _identity(place: Path) -> tuple[int, int]:
    found = place.lstat()
    return found.st_dev, found.st_ino
