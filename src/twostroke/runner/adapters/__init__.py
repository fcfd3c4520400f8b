"""LoRA adapters: folders as PEFT writes them, and the banks that steps read."""
