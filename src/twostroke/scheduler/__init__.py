"""What the next step computes, of which sequence: queues, budgets, admission, preemption.

Knows: requests, the cache manager, `now` as an argument.
Must not know: models, kernels, tokenizers, executors, clocks.
"""
