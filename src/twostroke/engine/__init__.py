"""The loop: core and executor are pure; the shells around them add text, threads and event loops.

Knows: the scheduler, the Executor protocol, text machines.
Must not know: which executor runs, HTTP, tensors.
"""
