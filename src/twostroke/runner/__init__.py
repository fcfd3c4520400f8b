"""Runs one step on real arrays: from a plan to a batch, through the model, to tokens. It owns the KV memory."""
