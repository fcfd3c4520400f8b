"""Skips many steps at once: in each of them every stream gets one more token, and nothing else can happen."""
