"""What moto's S3 lacks of S3's promises: of several conditional writes to one key, one wins."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any


def one_write_at_a_time() -> None:
    """Make writes wait for each other in this process's moto, which looks first and writes later.

    Done to moto's class, once for a process.
    """
    from moto.s3.responses import S3Response

    writing = threading.RLock()
    for name in ("put_object", "_key_response_post"):
        plain = getattr(S3Response, name)
        if not hasattr(plain, "__wrapped__"):
            setattr(S3Response, name, _alone(plain, writing))


def _alone(plain: Callable[..., Any], writing: threading.RLock) -> Callable[..., Any]:
    @wraps(plain)
    def alone(*args: Any, **kwargs: Any) -> Any:
        with writing:
            return plain(*args, **kwargs)

    return alone
