"""Running workers: the only place that imports ray and deepspeed, and torch with checkpointing."""
