"""Earlier turns as the APIs of agents write them, made into chat messages."""
