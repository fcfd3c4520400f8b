"""From files to packed weights: safetensors, names, packing at load, the cache on disk, the hub.

Knows: file formats, tensor names, how a model's matrices are put together.
Must not know: kernels (a packer is handed in), requests, how weights are used.
"""
