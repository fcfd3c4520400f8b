"""What users read while huggingface_hub asks a hub again and again: one sentence, not two lines for each attempt.
"""

from __future__ import annotations

import logging

_LOGGER = "huggingface_hub.utils._http"
_FIRST, _ASKS = "[Retry 1/", ("thrown while requesting", "Retrying in")
SENTENCE = "The hub cannot be reached, or is busy. It is asked again for about 25 seconds."


def say_once() -> None:
    """Lets huggingface_hub name its repeated attempts in one sentence. A second call changes nothing."""
    logging.getLogger(_LOGGER).addFilter(_once)


def _once(record: logging.LogRecord) -> bool:
    """Returns whether a record is shown; the first repetition gets the words of this module."""
    text = record.getMessage()
    if not any(words in text for words in _ASKS):
        return True
    record.msg, record.args = SENTENCE, ()
    return _FIRST in text
