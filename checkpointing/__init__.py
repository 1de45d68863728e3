"""What a checkpoint is, when to take one, which to keep, how to commit and restore one."""

if __name__ != "burst.checkpointing":  # a checkout's root is on sys.path
    raise ImportError(
        "import burst.checkpointing, not checkpointing: this folder is part of the burst package"
    )
