"""The checks between a socket and a request: sizes, keys, queues, refusals."""
