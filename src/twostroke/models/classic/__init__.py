"""Dense decoders with layer norms, one file each: learned positions, slopes by distance, early rotary positions.

Knows: config fields, the names of tensors, the ops.
Must not know: arrays, requests, scheduler, which backend runs.
"""
