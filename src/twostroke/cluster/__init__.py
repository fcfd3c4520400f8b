"""A front that serves clients from replicas in other processes, and what keeps those running, over plain TCP.

Knows: sockets, processes, the fleet's decisions.
Must not know: HTTP, models, what replicas compute.
"""
