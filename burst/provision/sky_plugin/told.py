"""What SkyPilot is told of a cloud's refusal."""

from __future__ import annotations

from sky import sky_logging
from sky.provision import common


def failure(cloud: str, what: str, code: str, said: str) -> common.ProvisionerError:
    """Return SkyPilot's error for a refusal, and log it: the launch's own error leaves it out.

    A launch's log has only what SkyPilot's own loggers say, so it is one of these.
    """
    made = common.ProvisionerError(f"{what}: {said}")
    made.errors = [{"code": code, "message": said}]
    sky_logging.init_logger(f"sky.provision.{cloud}").warning("%s", made)
    return made
