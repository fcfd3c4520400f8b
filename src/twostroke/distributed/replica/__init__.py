"""A replica: scheduler and executor behind frames, in a process of its own, and pages that replicas give each other."""
