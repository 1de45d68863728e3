"""Whether SkyPilot's API server that runs has burst's plugin.

For a cloud that SkyPilot has too, a server without the plugin would rent by SkyPilot's own code,
and nothing would tell.
"""

from __future__ import annotations

from sky.server import common

from burst.errors import SetupError, TransientError
from burst.provision.sky_plugin.register import NAME, VERSION

ANSWER_S = 10.0


def check_plugin(cloud: str) -> None:
    """SetupError if the server lacks the plugin that a cloud needs, or has another version of it.

    TransientError when the server does not answer.
    """
    try:
        answer = common.make_authenticated_request("GET", "/api/plugins", timeout=ANSWER_S)
        answer.raise_for_status()
        found = {one.get("name"): one.get("version") for one in answer.json()["plugins"]}
    except Exception as error:  # whatever it is, the same call may work later
        raise TransientError(f"SkyPilot's API server does not say its plugins: {error}") from error
    if found.get(NAME) == VERSION:
        return
    lacks = "without burst's plugin"
    if NAME in found:
        lacks = f"with version {found[NAME]} of burst's plugin, not {VERSION}"
    raise SetupError(
        f"SkyPilot's API server runs {lacks}, which {cloud} needs",
        hint="run `sky api stop`; burst then starts it with the plugin",
    )
