"""Loaded by SkyPilot's API server, in each of its processes; named in its plugins.yaml."""

from __future__ import annotations

from typing import Any

from sky.server import plugins

from burst.provision.sky_plugin.register import NAME, VERSION, register


class BurstPlugin(plugins.BasePlugin):
    """Adds burst's clouds."""

    @property
    def name(self) -> str:
        """See sky.server.plugins.BasePlugin."""
        return NAME

    @property
    def version(self) -> str:
        """See sky.server.plugins.BasePlugin."""
        return VERSION

    def install(self, extension_context: Any) -> None:
        """See sky.server.plugins.BasePlugin."""
        del extension_context
        register()
