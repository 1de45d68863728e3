"""The places at which SkyPilot 0.14.1 is told of Alibaba Cloud; each can be called again.

Two are SkyPilot's own for this (the cloud registry, `register_provisioner`); the others are
changed from outside, so each has a test that says which of them an upgrade breaks:
tests/integration/sky_plugin/test_sky_hooks.py.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

NAME = "alibaba"
TEMPLATE = Path(__file__).with_name("alibaba-ray.yml.j2")


def name() -> None:
    """Let task files and settings say `alibaba`: schemas read this tuple when they are made."""
    from sky.skylet import constants

    known: tuple[str, ...] = constants.ALL_CLOUDS
    if NAME not in known:
        vars(constants)["ALL_CLOUDS"] = (*known, NAME)


def cloud() -> None:
    """Enter the cloud into the registry; importing its class does."""
    from sky import clouds

    from burst.provision.sky_plugin.alibaba_cloud import Alibaba

    clouds.Alibaba = Alibaba  # type: ignore[attr-defined]  # where SkyPilot's own are


def catalog() -> None:
    """Put the catalog where SkyPilot imports it from, by a name made of the cloud's."""
    from sky import catalog as catalogs

    from burst.provision.sky_plugin import alibaba_catalog

    sys.modules[f"{catalogs.__name__}.{NAME}_catalog"] = alibaba_catalog
    catalogs.alibaba_catalog = alibaba_catalog  # type: ignore[attr-defined]  # as an import would


def provisioner() -> None:
    """Have machines made and ended by our functions, from our template."""
    from sky import provision

    from burst.provision.sky_plugin import alibaba_provision

    def template(*_: Any, **__: Any) -> provision.TemplateSpec:
        return provision.TemplateSpec(template_path=str(TEMPLATE))

    if provision.get_registered_provisioner(NAME) is None:
        provision.register_provisioner(NAME, alibaba_provision, template_override=template)


def keys() -> None:
    """Put this person's SSH key into what is made of the template, as for AWS."""
    from sky import authentication
    from sky.backends import backend_utils
    from sky.utils import yaml_utils

    from burst.provision.sky_plugin.alibaba_cloud import Alibaba

    theirs: Callable[[Any, str], None] = backend_utils._add_auth_to_cluster_config
    if getattr(theirs, "knows_alibaba", False):
        return

    @functools.wraps(theirs)
    def add(cloud: Any, tmp_yaml_path: str) -> None:
        if not isinstance(cloud, Alibaba):
            theirs(cloud, tmp_yaml_path)
            return
        config = authentication.configure_ssh_info(yaml_utils.read_yaml(tmp_yaml_path))
        yaml_utils.dump_yaml(tmp_yaml_path, config)

    add.knows_alibaba = True  # type: ignore[attr-defined]  # the mark that is looked for above
    backend_utils._add_auth_to_cluster_config = add


def failures() -> None:
    """Say how far a refusal reaches: of a zone, of a region's quota, of the whole account."""
    from sky.backends.cloud_vm_ray_backend import FailoverCloudErrorHandlerV2

    from burst.provision.sky_plugin import alibaba_failures

    handler = staticmethod(alibaba_failures.block)
    FailoverCloudErrorHandlerV2._alibaba_handler = handler  # type: ignore[attr-defined]  # by name


HOOKS: tuple[Callable[[], None], ...] = (name, cloud, catalog, provisioner, keys, failures)
