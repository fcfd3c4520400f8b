"""The OpenAPI document.

Knows: routes and their shapes.
Must not know: how requests are answered.
"""
