"""Remembers which pages were evicted lately, in a table whose size never changes."""

from __future__ import annotations

from array import array

LEAST_PLACES, MOST_PLACES, PLACES_A_PAGE = 4096, 65_536, 4
NOTHING = 0


class Evictions:
    """Remembers evicted pages by their paths. A path has one place in the table, which the latest path with that place
    takes. About n / (2 x places) of the last n evictions are forgotten too early. A page that was not evicted counts as
    evicted only when its path has the same hash as that of an evicted page.

    The table takes 8 bytes a place, all of them from the start on: it does not grow on a server that evicts for days.
    """

    def __init__(self, num_pages: int) -> None:
        """num_pages: the number of pages in the pool."""
        wanted = 1 << (PLACES_A_PAGE * num_pages - 1).bit_length()
        self._num_places = min(MOST_PLACES, max(LEAST_PLACES, wanted))
        self._paths = array("q", [NOTHING]) * self._num_places

    def add(self, path: int) -> None:
        """Note that the page at the end of this path was evicted."""
        self._paths[path % self._num_places] = path

    def __contains__(self, path: int) -> bool:
        return path != NOTHING and self._paths[path % self._num_places] == path
