"""What time a server has, as it says with every answer: RFC 9110, section 6.6.1, "Date"."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import datetime
from email.utils import parsedate_to_datetime

from burst.errors import TransientError
from burst.storage.settings import StoreSettings
from burst.storage.uri import parse_uri

LIMIT_S = 10.0


def address_of(uri: str, settings: StoreSettings) -> str | None:
    """Return the web address of the server that holds a store; None if burst knows of none.

    >>> address_of("s3://bucket/runs", StoreSettings(region="eu-west-1"))
    'https://s3.eu-west-1.amazonaws.com'
    >>> address_of("file:///runs", StoreSettings()) is None
    True
    """
    if parse_uri(uri).scheme != "s3":
        return None
    return settings.endpoint or f"https://s3.{settings.region or 'us-east-1'}.amazonaws.com"


def ahead_s(url: str, now: Callable[[], datetime], *, ca_bundle: str | None = None) -> float | None:
    """Return by how many seconds the server's clock is ahead of `now`; None if it does not say.

    Needs no credentials: a refusal has a date too. Right to the second and half the time of the
    answer. TransientError when nobody answers.
    """
    if not url.startswith(("http://", "https://")):
        raise TransientError(f"{url} is no address of a server")
    trust = ssl.create_default_context(cafile=ca_bundle)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trust), _Stay)
    before = now()
    try:
        with opener.open(urllib.request.Request(url, method="HEAD"), timeout=LIMIT_S) as answer:  # noqa: S310
            date = answer.headers["Date"]
    except urllib.error.HTTPError as error:
        date = error.headers["Date"]
        error.close()
    except OSError as error:
        raise TransientError(f"{url} does not answer: {error}") from error
    if not date:
        return None
    middle = before + (now() - before) / 2
    return (parsedate_to_datetime(date) - middle).total_seconds()


class _Stay(urllib.request.HTTPRedirectHandler):
    """Another server's time is not asked for."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None
