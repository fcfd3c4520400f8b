"""The server as processes: a supervisor, its worker, the service manager.

Knows: processes, signals.
Must not know: requests.
"""
