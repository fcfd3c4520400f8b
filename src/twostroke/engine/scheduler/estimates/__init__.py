"""How long a step takes: the cost model, corrected by measured steps."""
