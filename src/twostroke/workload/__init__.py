"""Requests of a workload and when they arrive, for the load generator and for the simulator.

Knows: times, token counts, trace files.
Must not know: engines, servers, clocks.
"""
