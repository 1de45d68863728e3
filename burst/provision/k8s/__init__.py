"""Kubernetes: what burst adds to SkyPilot's pods, what they cost, and what their API says."""
