"""A front that serves clients from replicas in other processes, and what keeps those running, over plain TCP."""
