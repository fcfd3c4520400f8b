"""Measuring this machine once, so that the time of any step can be predicted.

Knows: kernels, the runner's and the engine's parts, an injected clock.
Must not know: which model will be planned, click.
"""
