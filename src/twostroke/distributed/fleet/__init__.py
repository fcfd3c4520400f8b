"""Decides for a front (the HTTP server before the replicas) which replica computes a request, and what happens when a
replica is lost. The modules are pure."""
