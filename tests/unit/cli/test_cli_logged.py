"""What burst and libraries log while a command runs looks like its other words."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from burst.cli import show
from cli_scene import Call, Said

Logging = Callable[[Callable[[], None]], Said]


@pytest.fixture
def during(burst: Call, monkeypatch: pytest.MonkeyPatch) -> Logging:
    """Run a command within which something is logged."""

    def call(log: Callable[[], None]) -> Said:
        monkeypatch.setattr(show, "list_runs", lambda **_: log())
        return burst("ls", "--json")

    return call


def test_a_warning_of_burst(during: Logging) -> None:
    log = logging.getLogger("burst.controller.runs")
    said = during(lambda: log.warning("%s is left out: %s", "toy", "no credentials"))
    assert said == (0, "", "warning: toy is left out: no credentials\n")


def test_an_error_of_burst(during: Logging) -> None:
    said = during(lambda: logging.getLogger("burst.agent").error("it cannot be ended"))
    assert said.err == "error: it cannot be ended\n"


def test_of_a_librarys_warning_it_is_said_whose_it_is(during: Logging) -> None:
    said = during(lambda: logging.getLogger("urllib3.pool").warning("once more"))
    assert said.err == "warning: urllib3.pool: once more\n"


def test_that_a_request_is_made_again_is_not_told(during: Logging) -> None:
    log = logging.getLogger("urllib3.connectionpool")
    words = "Retrying (%r) after connection broken by '%r': %s"  # urllib3 2's
    assert during(lambda: log.warning(words, "Retry(2)", "refused", "/version/")).err == ""
    assert during(lambda: log.warning("Connection pool is full")).err != ""


def test_what_is_no_warning_is_not_told(during: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger(), "level", logging.DEBUG)
    assert during(lambda: logging.getLogger("burst.cost").info("by the way")).err == ""


def test_a_library_that_logs_by_the_root_brings_no_form_of_its_own(
    during: Logging, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])

    def log() -> None:
        logging.warning("by the root")  # noqa: LOG015 - that is what it is about
        logging.getLogger("burst.wiring").warning("after it")

    assert during(log).err == "warning: root: by the root\nwarning: after it\n"


def test_after_a_command_all_is_as_it_was(during: Logging) -> None:
    before = list(logging.getLogger().handlers)
    during(lambda: None)
    assert logging.getLogger().handlers == before
