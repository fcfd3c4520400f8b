"""The figures of a cluster, one module for each case. `python -m tools.measure_cluster` runs them."""
