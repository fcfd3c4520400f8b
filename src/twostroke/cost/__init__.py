"""What work costs: FLOPs and bytes by kind.

Knows: counts.
Must not know: whether the work is run, simulated or only planned; tensors.
"""
