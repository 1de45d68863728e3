"""What runs measured is there for the next plan."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from burst.controller.networks import Networks
from burst.cost.network import Bridge, Link

AT = datetime(2026, 1, 1, tzinfo=UTC)
LINK = Link(round_trip_s=0.012, bytes_per_s=1e7)
PAIR = ("aws/us-east-1", "ssh/lab")


def test_the_newest_measurement_between_two_islands_is_known_whichever_comes_first(
    tmp_path: Path,
) -> None:
    networks = Networks(tmp_path / "networks")
    assert networks.known(PAIR) is None
    networks.note(Bridge(islands=PAIR, link=Link(error="no")), AT)
    networks.note(Bridge(islands=PAIR, link=LINK), AT)
    assert networks.known(PAIR) == networks.known(("ssh/lab", "aws/us-east-1")) == (LINK, AT)
    assert networks.known(("aws/us-east-1", "local")) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"link": {"what": 1}, "at": "2026"}'])
def test_a_damaged_file_is_left_out_aloud(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    networks = Networks(tmp_path)
    networks.note(Bridge(islands=PAIR, link=LINK), AT)
    (file,) = tmp_path.iterdir()
    file.write_text(text)
    assert networks.known(PAIR) is None
    assert "damaged" in caplog.text


def test_a_folder_that_cannot_be_written_ends_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "networks").write_text("a file")
    Networks(tmp_path / "networks").note(Bridge(islands=PAIR, link=LINK), AT)
    assert "not kept for the next plan" in caplog.text
