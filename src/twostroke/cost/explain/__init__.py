"""What a completion's time was spent on, why, and what would help."""
