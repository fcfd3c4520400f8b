"""Dense decoders with RMS norms and rotary positions, one file each.

Knows: config fields, the names of tensors, the ops.
Must not know: arrays, requests, scheduler, which backend runs.
"""
