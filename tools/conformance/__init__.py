"""Checks by other projects' programs that CI does not install; docs/guides/conformance.md has their commands and
output."""
