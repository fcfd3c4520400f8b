"""What the APIs take and give: request fields and the JSON of answers.

Knows: the shapes of the OpenAI and Anthropic APIs.
Must not know: sockets, the engine's thread.
"""
