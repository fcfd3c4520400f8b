"""Which requests to a hub are repeated, how often, and what users read meanwhile.

The first question of an operation (contact.py) is asked once: where the hub cannot be reached, users learn it at once.
Requests after an answer are repeated for a minute, because a network that was there a moment ago often comes back.
"""

from __future__ import annotations

import contextlib
import logging
import time

from twostroke.weights.hub.problems import is_transport_error, status_of

_CLIENT = "huggingface_hub.utils._http"
_FIRST, _ASKS = "[Retry 1/", ("thrown while requesting", "Retrying in")
SENTENCE = "The hub is busy, or the connection to it was lost. It is asked again for about a minute."
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""The waits in seconds before requests that are repeated, one after the other."""
BUSY = (408, 429)

log = logging.getLogger(__name__)


def may_pass(error: Exception) -> bool:
    """Returns whether another attempt makes sense: after a lost connection, or with a busy or failing server."""
    status = status_of(error) or 0
    return is_transport_error(error) or status in BUSY or status >= 500


class Notice:
    """Tells users once in an operation that requests are repeated. Several threads may use it."""

    def __init__(self) -> None:
        self._untold = [SENTENCE]

    def tell(self) -> None:
        """Logs the sentence, the first time."""
        with contextlib.suppress(IndexError):
            log.warning(self._untold.pop())


class RetryWaits:
    """Waits before a request is repeated, each time longer, until the waits of one row of failures are used up."""

    def __init__(self, notice: Notice) -> None:
        self._notice = notice
        self._waits = iter(WAITS_S)

    def renew(self) -> None:
        """Begins a new row of failures, because a request has brought bytes."""
        self._waits = iter(WAITS_S)

    def wait(self, error: Exception) -> None:
        """Waits after a failure. Raises the failure itself where another attempt makes no sense, or where all waits
        are used up."""
        wait_s = next(self._waits, None) if may_pass(error) else None
        if wait_s is None:
            raise error
        self._notice.tell()
        time.sleep(wait_s)


def say_once() -> None:
    """Lets huggingface_hub name its repeated attempts in one sentence. A second call changes nothing."""
    logging.getLogger(_CLIENT).addFilter(_once)


def _once(record: logging.LogRecord) -> bool:
    """Returns whether a record is shown; the first repetition gets the words of this module."""
    text = record.getMessage()
    if not any(words in text for words in _ASKS):
        return True
    record.msg, record.args = SENTENCE, ()
    return _FIRST in text
