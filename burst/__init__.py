"""Elastic training on spot and on-prem machines that survives losing them."""

from __future__ import annotations

from typing import TYPE_CHECKING

__version__ = "0.1.0"
__all__ = ["__version__", "params", "session"]

if TYPE_CHECKING:
    from burst.training.session import params, session


def __getattr__(name: str) -> object:
    """Load torch only when a training script asks for it: importing burst is free."""
    if name in {"session", "params"}:
        from burst.training import session as module

        return getattr(module, name)
    raise AttributeError(f"module 'burst' has no attribute {name!r}")
