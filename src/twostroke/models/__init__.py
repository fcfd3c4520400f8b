"""Models: one file for each architecture, which reads its config and traces its program of ops."""
