"""What lasts is not searched for garbage while a server runs, and is again afterwards."""

from __future__ import annotations

import gc

import pytest

from twostroke.cli.server.collector import lasting_heap


def test_what_is_there_is_frozen_until_the_end() -> None:
    gc.unfreeze()  # what the test run itself has frozen
    kept = [[number] for number in range(1000)]
    before = gc.get_freeze_count()
    with pytest.raises(KeyError), lasting_heap():
        assert gc.get_freeze_count() > before + len(kept) and not any(each is kept for each in gc.get_objects())
        raise KeyError
    assert gc.get_freeze_count() == 0 and any(each is kept for each in gc.get_objects())
