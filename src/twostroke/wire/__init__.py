"""The messages of fronts and replicas, and what they say in the engine's own words. Pure.

Knows: requests, events.
Must not know: bytes, sockets, what is done with a message.
"""
