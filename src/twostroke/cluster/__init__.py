"""Replicas in processes of their own, and the front that serves clients from them, over plain TCP.

Knows: sockets, processes, the fleet's decisions.
Must not know: HTTP, models.
"""
