"""Tool calls in a model's text: one reader a style, each a feed/finish machine.

Knows: how models of each family write calls.
Must not know: requests, HTTP, which model is loaded.
"""
