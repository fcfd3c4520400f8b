"""Requests of a workload and when they arrive, for the load generator and for the simulator."""
