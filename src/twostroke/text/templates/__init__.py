"""Renders a conversation by a model's own chat template: its sources, its messages, and a sandbox."""
