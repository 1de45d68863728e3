"""Alibaba Cloud's own SDK against a stand-in on the loopback that checks its signatures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ecs_scene import Scene, at_alibaba


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    with at_alibaba(monkeypatch) as made:
        yield made
