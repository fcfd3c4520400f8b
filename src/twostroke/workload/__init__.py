"""Who asks for what, and when: requests of a workload, for the load generator and for the simulator.

Knows: times, token counts, trace files.
Must not know: engines, servers, clocks.
"""
