"""The verbs that start a server, a front or a replica, or ask a running one."""
