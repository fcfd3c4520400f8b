"""Runs a front that serves clients from replicas in other processes, and keeps these replicas running, over plain TCP.
"""
