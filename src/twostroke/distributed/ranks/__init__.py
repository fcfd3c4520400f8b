"""Runs one model in several processes: the leader plans and samples, the others compute their part of each step."""
