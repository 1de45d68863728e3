"""A cluster's stand-in and somebody's home."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from kube_scene import Scene, at_kubernetes


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    if shutil.which("kubectl") is None:
        pytest.skip("needs kubectl, as SkyPilot does")
    with at_kubernetes(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture
def scene(person: Scene, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """Return a cluster that is new for each test."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KUBECONFIG", str(person.home / ".kube/config"))
    person.renew()
    return person
