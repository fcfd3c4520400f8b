"""The pool of KV pages and their reference counts."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class PagePool:
    """A pool of `num_pages` page ids. A page is free (count 0) or held by one or more owners.

    owners: the count of each page; live, to be read only. on_fresh: called for each page that is taken for the first
    time; new pages are taken in the order of their ids.
    """

    def __init__(self, num_pages: int, on_fresh: Callable[[int], None] | None = None) -> None:
        if num_pages < 1:
            raise ValueError(f"a pool needs at least one page, not {num_pages}")
        self.num_pages = num_pages
        self.owners = [0] * num_pages
        # Ids are popped from the end: low ids come first, and a page that was just freed is taken next (its memory is
        # warm).
        self._free = list(range(num_pages - 1, -1, -1))
        self._fresh = 0  # the lowest id that was never taken
        self._on_fresh = on_fresh

    @property
    def num_free(self) -> int:
        """The number of pages without an owner."""
        return len(self._free)

    @property
    def next_is_new(self) -> bool:
        """Whether `allocate` would return a page that was never taken: all others have owners."""
        return bool(self._free) and self._free[-1] == self._fresh

    def count(self, page_id: int) -> int:
        """Returns the number of owners of a page."""
        return self.owners[page_id]

    def num_single(self, page_ids: Iterable[int]) -> int:
        """Returns how many of these pages have one owner."""
        counts = self.owners
        return sum([counts[page_id] == 1 for page_id in page_ids])

    def counts(self) -> list[int]:
        """Returns the number of owners of each page, as a copy."""
        return list(self.owners)

    def allocate(self) -> int | None:
        """Returns a free page, which has one owner now; None when no page is free."""
        if not self._free:
            return None
        page_id = self._free.pop()
        self.owners[page_id] = 1
        if page_id == self._fresh:
            self._fresh = page_id + 1
            if self._on_fresh is not None:
                self._on_fresh(page_id)
        return page_id

    def retain(self, page_id: int) -> int:
        """Add one owner to a page and return how many it has now. Raises ValueError for a free page."""
        owners = self.owners[page_id]
        if owners < 1:
            raise ValueError(f"page {page_id} is free and cannot be shared")
        self.owners[page_id] = owners + 1
        return owners + 1

    def release(self, page_id: int) -> int:
        """Remove one owner of a page and return how many are left. A page without owners is free. Raises ValueError for
        a page that is free."""
        owners = self.owners[page_id] - 1
        if owners < 0:
            raise ValueError(f"page {page_id} was freed twice")
        self.owners[page_id] = owners
        if owners == 0:
            self._free.append(page_id)
        return owners
