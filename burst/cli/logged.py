"""What is logged while a command runs, in the words of the command line."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager


class Words(logging.Formatter):
    """Says `warning: ...`, and of a library's words whose they are."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        whose = "" if record.name.partition(".")[0] == "burst" else f"{record.name}: "
        return f"{record.levelname.lower()}: {whose}{super().format(record)}"


class Stderr:
    """Standard error as it is at the moment: a live bar puts itself in its place."""

    def write(self, text: str) -> None:
        """Write as the stream does."""
        sys.stderr.write(text)

    def flush(self) -> None:
        """Flush as the stream does."""
        sys.stderr.flush()


def _is_news(record: logging.LogRecord) -> bool:
    """Whether more is told than that a request is made again; who gives up says so by an error."""
    again = record.name == "urllib3.connectionpool" and str(record.msg).startswith("Retrying")
    return not again


@contextmanager
def logged() -> Iterator[None]:
    """Have warnings of all of burst, and of libraries, told on standard error.

    The root has a handler then, so no library that logs gives it one with a form of its own.
    """
    handler = logging.StreamHandler(Stderr())
    handler.setLevel(logging.WARNING)
    handler.setFormatter(Words())
    handler.addFilter(_is_news)
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
