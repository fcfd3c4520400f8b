"""A replica runs scheduler and executor in a process of its own. Frames reach it; replicas send each other pages."""
