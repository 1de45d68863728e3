"""Whose account it is: from the environment, or the configuration of the `aliyun` command."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from burst.errors import SetupError

CONFIG = Path(".aliyun/config.json")  # below the home folder
HINT = "set ALIBABA_CLOUD_ACCESS_KEY_ID and ALIBABA_CLOUD_ACCESS_KEY_SECRET, or: aliyun configure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A key of an account; of a role that was assumed, with its token."""

    key_id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)
    region: str = ""  # where its owner works if they say nothing else


def find(env: Mapping[str, str], home: Path) -> Credentials | None:
    """Return the credentials of this person; None if there are none.

    SetupError when there is a configuration and it cannot be used: nothing else is tried then.
    """
    if env.get("ALIBABA_CLOUD_ACCESS_KEY_ID"):
        if not env.get("ALIBABA_CLOUD_ACCESS_KEY_SECRET"):
            raise SetupError(
                "ALIBABA_CLOUD_ACCESS_KEY_ID is set, ALIBABA_CLOUD_ACCESS_KEY_SECRET is not",
                hint=HINT,
            )
        return Credentials(
            key_id=env["ALIBABA_CLOUD_ACCESS_KEY_ID"],
            secret=env["ALIBABA_CLOUD_ACCESS_KEY_SECRET"],
            token=env.get("ALIBABA_CLOUD_SECURITY_TOKEN", ""),
            region=env.get("ALIBABA_CLOUD_REGION_ID", ""),
        )
    path = home / CONFIG
    if not path.exists():
        return None
    profile = _profile(path, env.get("ALIBABA_CLOUD_PROFILE", ""))
    return Credentials(
        key_id=profile["access_key_id"],
        secret=profile["access_key_secret"],
        token=profile.get("sts_token", ""),
        region=env.get("ALIBABA_CLOUD_REGION_ID") or profile.get("region_id", ""),
    )


def _profile(path: Path, name: str) -> Mapping[str, Any]:
    """Return the profile of that name, or the current one."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        wanted = name or config["current"]
        profiles = {profile["name"]: profile for profile in config["profiles"]}
    except (ValueError, KeyError, TypeError) as error:
        raise SetupError(f"{path} is not what `aliyun configure` writes: {error}") from None
    if wanted not in profiles:
        raise SetupError(f"{path} has no profile {wanted}")
    profile: dict[str, Any] = profiles[wanted]
    mode = profile.get("mode", "AK")
    if mode not in {"AK", "StsToken"} or not profile.get("access_key_id"):
        raise SetupError(
            f"{path}: profile {wanted} is of mode {mode}; burst reads AK and StsToken", hint=HINT
        )
    return profile
