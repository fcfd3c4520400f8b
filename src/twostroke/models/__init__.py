"""Model programs: one file per architecture, each a short program over the ops.

Knows: ops, weights' tree, ModelSpec.
Must not know: requests, scheduler, which backend runs.
"""
