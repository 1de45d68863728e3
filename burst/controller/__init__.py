"""The loop that keeps a run going: observe, decide, write down, act."""
