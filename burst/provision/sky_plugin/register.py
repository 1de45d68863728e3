"""Add burst's clouds to the SkyPilot of this process, and to the API server that it starts.

Alibaba Cloud is new to SkyPilot; of Lambda Cloud, parts of SkyPilot's own are replaced.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from burst.errors import SetupError
from burst.provision.alibaba import credentials
from burst.provision.lambda_cloud.api import read_key

log = logging.getLogger(__name__)

NAME = "burst"  # the plugin's
VERSION = "1"  # another one when a server that runs an older one would rent in a way not meant
PLUGIN = "burst.provision.sky_plugin.plugin.BurstPlugin"
PLUGINS_FILE = "SKYPILOT_SERVER_PLUGINS_CONFIG"  # SkyPilot's own variable
USUAL_FILE = ".sky/plugins.yaml"  # below the home folder
REPLACED = frozenset({"lambda"})  # clouds of SkyPilot's own that burst's code rents at


def wanted() -> tuple[str, ...]:
    """Return the clouds that are installed and have credentials."""
    return tuple(name for name, test in _WANTED.items() if test())


def register() -> tuple[str, ...]:
    """Add every cloud that is installed and has credentials; return their names.

    Safe to call again. Must come before SkyPilot reads a task that names one of them.
    """
    clouds = wanted()
    for name in clouds:
        _ADD[name]()
    return clouds


def _alibaba_is_wanted() -> bool:
    try:
        known = credentials.find(os.environ, Path.home()) is not None
    except SetupError as error:  # who uses another cloud is not kept from it
        log.warning("Alibaba Cloud is left out: %s", error)
        return False
    return known and find_spec("alibabacloud_ecs20140526") is not None


def _add_alibaba() -> None:
    from burst.provision.sky_plugin import alibaba_hooks

    for hook in alibaba_hooks.HOOKS:
        hook()


def _lambda_is_wanted() -> bool:
    try:
        return bool(read_key(os.environ))
    except SetupError:
        return False


def _add_lambda() -> None:
    from burst.provision.sky_plugin import lambda_hooks

    for hook in lambda_hooks.HOOKS:
        hook()


_WANTED: Mapping[str, Callable[[], bool]] = {
    "alibaba": _alibaba_is_wanted,
    "lambda": _lambda_is_wanted,
}
_ADD: Mapping[str, Callable[[], None]] = {"alibaba": _add_alibaba, "lambda": _add_lambda}


def tell_server(home: Path) -> None:
    """Have the API server that this process may start load the plugin, beside a person's own ones.

    A server that runs already is not changed: `sky api stop`, once, after installing an extra.
    """
    if not wanted():
        return
    theirs = Path(os.environ.get(PLUGINS_FILE) or Path.home() / USUAL_FILE).expanduser()
    ours = home / "sky-plugins.yaml"
    if theirs == ours:
        return
    config = _config(theirs)
    plugins = config.get("plugins") or []
    if any(plugin.get("class") == PLUGIN for plugin in plugins):
        return
    ours.parent.mkdir(parents=True, exist_ok=True)
    whole = {**config, "plugins": [*plugins, {"class": PLUGIN}]}
    ours.write_text(yaml.safe_dump(whole), encoding="utf-8")
    os.environ[PLUGINS_FILE] = str(ours)


def _config(path: Path) -> dict[str, Any]:
    """Return what a plugins.yaml says; SetupError if it is none."""
    try:
        config = (yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else None) or {}
    except yaml.YAMLError as error:
        raise SetupError(f"{path} is no YAML: {error}") from None
    if not isinstance(config, dict):
        raise SetupError(f"{path} is no mapping with `plugins:`")
    return config
