"""The disk as one more source of prefix pages: what to write and read between steps, the files, their threads."""
