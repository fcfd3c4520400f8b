"""Measuring this machine once, so that the time of any step can be told.

Knows: kernels, the runner's and the engine's parts, an injected clock.
Must not know: which model will be planned, click.
"""
