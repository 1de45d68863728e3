"""Prices, the ledger, and the decisions that follow from them."""

if __name__ != "burst.cost":  # a checkout's root is on sys.path
    raise ImportError("import burst.cost, not cost: this folder is part of the burst package")
