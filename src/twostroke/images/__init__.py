"""Image files made into tiles: formats, limits, the process that decodes, and the rules of each family.

Knows: image files, processors' settings, the marks that stand around images in prompts.
Must not know: encoders, requests of any API, schedulers.
"""
