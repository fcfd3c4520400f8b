"""Decides what the next step computes, and of which sequences: queues, budgets, admission, preemption."""
