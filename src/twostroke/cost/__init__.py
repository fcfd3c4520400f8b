"""What work costs: FLOPs and bytes by kind."""
