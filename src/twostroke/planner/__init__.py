"""What a model will cost on a machine, before anything but its config.json is read.

Knows: model sizes, hardware, predictions. doctor/ measures this machine for them.
Must not know: servers, running engines; kernels (but for doctor/).
"""
