"""Which tokens come next: the pure core, scheduler, cache and guesses, and the shells with threads and event loops."""
