"""Models: one file each, which reads the config of an architecture and says its program over the ops.

Knows: config fields, the names of tensors, the ops.
Must not know: arrays, requests, scheduler, which backend runs.
"""
