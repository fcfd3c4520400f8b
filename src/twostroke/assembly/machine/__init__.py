"""Reads and sets the limits of this machine: control groups, the heap, waiting times, and the choice of cores."""
