"""Agents' own packages in loops of tool calls, over real sockets, with answers that tests write."""
