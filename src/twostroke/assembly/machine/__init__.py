"""Reads what this machine offers, and fits the process to it: control groups, processors, memory nodes, and the heap.
Also measures how long threads wait for a processor.
"""
