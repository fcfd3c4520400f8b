"""What is recorded of requests and steps: parts of their time, prefix misses, verified guesses."""
