"""Published weights, for effects that random weights and spark cannot show."""
