"""One model in several processes: the leader plans and samples, the others compute their part of each step.

Knows: plans, step inputs, sockets, processes.
Must not know: models, settings, HTTP, scheduling.
"""
