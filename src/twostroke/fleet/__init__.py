"""What a front decides: which replica computes a request, and what happens when one is lost. Pure.

Knows: requests, events, loads, times as arguments.
Must not know: sockets, clocks, text, engines.
"""
