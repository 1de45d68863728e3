"""The task file: its model, its parser and its schema."""

if __name__ != "burst.task_specs":  # a checkout's root is on sys.path
    raise ImportError("import burst.task_specs, not task_specs: this folder is part of the burst package")
