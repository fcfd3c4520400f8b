"""Model files of families with latent attention, one a family.

Knows: the blocks of models/common.
Must not know: backends.
"""
