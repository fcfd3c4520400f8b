"""The requests of a workload and their arrival times, for the load generator and for the simulator."""
