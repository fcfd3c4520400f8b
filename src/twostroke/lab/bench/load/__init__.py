"""The load generator: drives any server with the OpenAI API and observes its answers."""
