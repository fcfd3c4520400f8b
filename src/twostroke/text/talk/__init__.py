"""The ways in which models write a conversation: one description for each way, and the readers, writers and grammars
made of it."""
