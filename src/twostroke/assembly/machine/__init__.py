"""What this machine allows: limits of the control group, the heap, waiting times, and the cost of its steps."""
