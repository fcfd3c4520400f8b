"""Code that verbs share: flags, progress, streams, errors and exit codes."""
