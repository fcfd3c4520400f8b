"""A replica: scheduler and executor behind frames, in a process of its own, and pages that replicas give each other.

Knows: sockets, threads, the scheduler's heart.
Must not know: models, settings, what starts it, fronts' decisions.
"""
