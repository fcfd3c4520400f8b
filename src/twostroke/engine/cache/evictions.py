"""Remembers which pages were evicted lately, in a table whose size never changes."""

from __future__ import annotations

from array import array

LEAST_PLACES, MOST_PLACES, PLACES_A_PAGE = 4096, 65_536, 4
NOTHING = 0


class Evictions:
    """Remembers which pages were evicted lately, so that a prefix miss can be explained. A page is known by the hash of
    all tokens up to its end, its path. The hash selects one entry of a table; a later page with the same entry
    overwrites it.

    About n / (2 x entries) of the last n evictions are forgotten too early. A page that was not evicted counts as
    evicted only when the hashes are equal. The table takes 8 bytes an entry from the start on, so it does not grow on a
    server that evicts for days.
    """

    def __init__(self, num_pages: int) -> None:
        """num_pages: the number of pages in the pool. The table of evicted pages has at least PLACES_A_PAGE entries for
        each page of the pool, within the limits LEAST_PLACES and MOST_PLACES."""
        wanted = 1 << (PLACES_A_PAGE * num_pages - 1).bit_length()
        self._num_places = min(MOST_PLACES, max(LEAST_PLACES, wanted))
        self._paths = array("q", [NOTHING]) * self._num_places

    def add(self, path: int) -> None:
        """Notes that a page was evicted. path: the hash of all tokens up to the end of the page."""
        self._paths[path % self._num_places] = path

    def __contains__(self, path: int) -> bool:
        return path != NOTHING and self._paths[path % self._num_places] == path
