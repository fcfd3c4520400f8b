"""The pool of KV pages and their reference counts.

Knows: page ids.
Must not know: what a page holds.
"""

from __future__ import annotations

from collections.abc import Iterable


class PagePool:
    """num_pages page ids. A page is free (count 0) or held by one or more owners."""

    def __init__(self, num_pages: int) -> None:
        if num_pages < 1:
            raise ValueError(f"a pool needs at least one page, not {num_pages}")
        self.num_pages = num_pages
        self._counts = [0] * num_pages
        # Popped from the end: low ids first, and a page just freed is the next one taken (its memory is warm).
        self._free = list(range(num_pages - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Pages without an owner."""
        return len(self._free)

    def count(self, page_id: int) -> int:
        """Owners of a page."""
        return self._counts[page_id]

    def num_single(self, page_ids: Iterable[int]) -> int:
        """How many of these pages have one owner."""
        counts = self._counts
        return sum([counts[page_id] == 1 for page_id in page_ids])

    def counts(self) -> list[int]:
        """Owners of each page: a copy."""
        return list(self._counts)

    def allocate(self) -> int | None:
        """A free page with one owner, or None."""
        if not self._free:
            return None
        page_id = self._free.pop()
        self._counts[page_id] = 1
        return page_id

    def retain(self, page_id: int) -> None:
        """One more owner. Raises ValueError for a free page."""
        if self._counts[page_id] < 1:
            raise ValueError(f"page {page_id} is free and cannot be shared")
        self._counts[page_id] += 1

    def release(self, page_id: int) -> None:
        """One owner less; without owners it is free. Raises ValueError for a page that is free already."""
        if self._counts[page_id] < 1:
            raise ValueError(f"page {page_id} was freed twice")
        self._counts[page_id] -= 1
        if self._counts[page_id] == 0:
            self._free.append(page_id)
