"""The verbs that start a server, a front (an HTTP server whose replicas compute) or a replica, or ask a running server.
"""
