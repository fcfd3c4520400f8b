"""What a model will cost on a machine, before anything but its config.json is read.

Knows: model sizes, hardware, predictions.
Must not know: kernels, servers, running engines.
"""
