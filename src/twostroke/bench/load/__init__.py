"""The load generator: drives any server with the OpenAI API and observes its answers.

Knows: HTTP clients, the clock, workloads.
Must not know: this engine; a server is a server.
"""
