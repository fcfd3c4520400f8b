"""Builds the engines of several processes: ranks and stages of one model, and replicas."""
