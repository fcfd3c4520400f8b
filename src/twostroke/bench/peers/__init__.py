"""Other engines, each in an environment of its own, driven as a process with JSON in and out.

Knows: processes, virtual environments.
Must not know: how an engine works (its driver does), statistics.
"""
