"""Conversations as clients keep them, made into what one chat template takes.

Knows: messages in the OpenAI shape.
Must not know: HTTP, token ids.
"""
