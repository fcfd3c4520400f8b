"""Conversations as clients keep them, made into what one chat template takes."""
