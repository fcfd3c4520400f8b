"""The package for measuring, predicting and simulating: `bench`, `planner`, `sim` and the workloads that they share."""
