"""Decides which tokens come next: the pure core with scheduler, cache and guesses, and the shells around it with
threads and event loops."""
