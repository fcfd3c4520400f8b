"""LoRA adapters: folders as PEFT writes them, and the banks that steps read.

Knows: safetensors, programs, packed matrices.
Must not know: requests, servers, how an adapter is chosen.
"""
