"""Which format a model has: what its files say, what its template writes, and what of that is believed.

Knows: formats, templates as functions, vocabularies.
Must not know: a template's source, requests.
"""
