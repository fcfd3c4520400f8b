"""Decides for a front which replica computes a request, and what happens when a replica is lost. The modules are pure.
"""
