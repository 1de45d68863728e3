"""Lambda Cloud: its API, the machines of a cluster there, and those of a run. Without SkyPilot."""
