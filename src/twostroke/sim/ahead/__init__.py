"""Steps in which nothing but one more token for each stream can happen, done many at a time.

Knows: the scheduler's queues, cache and limits; it is a part of the simulator, and the engine never uses it.
Must not know: workloads, fleets.
"""
