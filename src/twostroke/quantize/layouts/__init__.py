"""The ways in which the formats of the hub store codes and scales: functions from arrays to named arrays."""
