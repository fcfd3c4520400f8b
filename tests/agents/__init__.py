"""The packages of agents run loops of tool calls over real sockets; tests write the answers."""
