"""A cluster's stand-in and somebody's home, new for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kube_scene import Scene, at_kubernetes


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scene]:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / ".kube/config"))
    with at_kubernetes(tmp_path) as made:
        yield made
