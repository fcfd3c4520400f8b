"""What the next step computes, of which sequence: queues, budgets, admission, preemption."""
