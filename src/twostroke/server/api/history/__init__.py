"""Earlier turns as the APIs of agents write them, made into chat messages.

Knows: the blocks and items of these APIs.
Must not know: templates.
"""
