"""How models converse: one description for each way, and what is made of it.

Knows: turns, thoughts, calls, the marks around them.
Must not know: requests, HTTP, which model is loaded.
"""
