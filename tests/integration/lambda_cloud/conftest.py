"""SkyPilot in this process, in a home of its own, with Lambda Cloud on this machine."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lambda_emulator import KEY, LambdaEmulator, StepClock


@pytest.fixture(scope="session")
def sky_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home with a key of Lambda and one for SSH; SkyPilot reads where it is when imported."""
    home = tmp_path_factory.mktemp("sky")
    (home / ".lambda_cloud").mkdir()
    (home / ".lambda_cloud/lambda_keys").write_text(f"api_key = {KEY}\n")
    (home / ".ssh").mkdir()
    key = home / ".ssh/sky-key"
    subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-N", "", "-f", str(key)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(home))
        patch.setenv("SKYPILOT_DISABLE_USAGE_COLLECTION", "1")
        for name in [name for name in os.environ if name.startswith("SKYPILOT_SERVER_")]:
            patch.delenv(name)
        yield home


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StepClock:
    return StepClock()


@pytest.fixture
def emulator(
    sky_home: Path, clock: StepClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[LambdaEmulator]:
    """Lambda, to which burst's part of SkyPilot goes with the test's clock."""
    from burst.provision.sky_plugin import lambda_hooks, lambda_provision

    for module in (lambda_hooks, lambda_provision):
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
    with LambdaEmulator(clock) as made:
        monkeypatch.setenv("BURST_LAMBDA_URL", made.url)
        made.add_key("sky-key-me")
        yield made
    for path in (sky_home / ".lambda_cloud/burst-pace").glob("*"):
        path.unlink()
