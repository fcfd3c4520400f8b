"""The server as processes: a supervisor, its worker, the service manager."""
