"""What several model files share: the registry, reading of usual fields, usual blocks.

Knows: config fields, the ops.
Must not know: any one architecture.
"""
