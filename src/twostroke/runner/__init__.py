"""Plan to batch to model to tokens; owns the KV memory."""
