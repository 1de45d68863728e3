"""Where a machine may be: `infra: cloud/region/zone`, or `cloud`, `region` and `zone` apart."""

from __future__ import annotations

import re

from burst.task_specs.fields import Fields
from burst.task_specs.model import Infra
from burst.task_specs.problems import nearest

# SkyPilot 0.14.1's, and two of ours
CLOUDS = (
    "alibaba", "aws", "azure", "cudo", "do", "fluidstack", "gcp", "hyperbolic", "ibm", "k8s",
    "lambda", "local", "mithril", "nebius", "oci", "paperspace", "primeintellect", "runpod", "scp",
    "seeweb", "shadeform", "slurm", "ssh", "vast", "verda", "vsphere", "yotta",
)  # fmt: skip
ON_DEMAND_ONLY = frozenset({"lambda"})  # clouds without a spot market
ENDED_BY_KEY = frozenset({"lambda"})  # clouds where no machine can end itself
AS_THEY_ARE = frozenset({"local", "slurm", "ssh"})  # whose machines no launch makes
NAMED = frozenset({"k8s", "slurm", "ssh"})  # kinds of which there are several pools, by names
SEES_FILES = frozenset({"local", "slurm"})  # whose machines have this one's file system
_SAME = {"kubernetes": "k8s"}
_MEANT = {
    "amazon": "aws", "ec2": "aws", "google": "gcp", "gce": "gcp", "microsoft": "azure",
    "aliyun": "alibaba", "alicloud": "alibaba", "lambdalabs": "lambda", "digitalocean": "do",
    "eks": "k8s", "gke": "k8s", "oracle": "oci", "on-prem": "ssh",
}  # fmt: skip
_WHOLE_REST = ("k8s", "ssh")  # a context or pool name may hold slashes
_LOWER = ("alibaba", "aws", "azure", "gcp", "ibm", "lambda", "oci")  # how they write all places
_NO_ZONES = frozenset({"lambda"})
_ZONES = {  # with the region in it, as each cloud's "Regions and zones" has them
    "alibaba": re.compile(r"([a-z]{2}-[a-z]+(?:-\d+)?)(?:(?<=\d)[a-z]|-[a-z])"),
    "aws": re.compile(r"([a-z]{2}(?:-[a-z]+)+-\d+)(?:-[a-z]+-\d+)?[a-z]"),
    "gcp": re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]"),
    "ibm": re.compile(r"([a-z]{2}-[a-z]+)-\d"),
}
_FORM = "the form is cloud, cloud/region or cloud/region/zone, with * for any"


def read_infra(fields: Fields) -> Infra:
    """Return where `fields` (resources, or one candidate) wants to be."""
    apart = [key for key in ("cloud", "region", "zone") if fields.has(key)]
    if not fields.has("infra"):
        return _read_apart(fields)
    for key in apart:
        fields.problem(key, "`infra` says this already; keep one of them")
    return fields.read("infra", parse_infra) or Infra()


def parse_infra(text: str) -> Infra:
    """Read `cloud/region/zone`, as SkyPilot does; ValueError says what is wrong."""
    parts = [part.strip() for part in text.strip().strip("/").split("/")]
    cloud = None if parts[0] == "*" else _cloud(parts[0])
    if cloud in _WHOLE_REST:
        rest = "/".join(parts[1:])
        if not all(parts):
            raise ValueError(f"an empty part; the form here is {cloud}/name")
        return Infra(cloud=cloud, region=None if rest in {"", "*"} else rest)
    if not all(parts):
        raise ValueError(f"an empty part; {_FORM}")
    if len(parts) > 3:  # noqa: PLR2004 - cloud, region, zone
        raise ValueError(f"{len(parts)} parts; {_FORM}")
    region, zone = (None if part == "*" else part for part in (*parts[1:], "*", "*")[:2])
    return _checked(Infra(cloud=cloud, region=region, zone=zone))


def infra_text(infra: Infra) -> str | None:
    """Write an infra so that parse_infra gives it back; None if anywhere will do."""
    return None if infra == Infra() else str(infra)


def _read_apart(fields: Fields) -> Infra:
    cloud = fields.read("cloud", _cloud)
    parts = [fields.read(key, _part) or None for key in ("region", "zone")]
    try:
        return _checked(Infra(cloud=cloud, region=parts[0], zone=parts[1]))
    except ValueError as error:
        fields.problem("zone" if fields.has("zone") else "region", str(error))
        return Infra()


def _part(text: str) -> str:
    """Return a region or zone, "" for any."""
    if not text.strip() or "/" in text:
        raise ValueError("needs one name; to give several parts use `infra`")
    return text.strip().removeprefix("*")


def _cloud(text: str) -> str:
    name = _SAME.get(text.strip().lower(), text.strip().lower())
    if name in CLOUDS:
        return name
    if not name:
        raise ValueError(f"an empty part; {_FORM}")
    guess = _MEANT.get(name) or nearest(name, CLOUDS)
    meant = f"; did you mean {guess}?" if guess else ""
    raise ValueError(f"unknown cloud{meant} (known: {', '.join(CLOUDS)})")


def _checked(infra: Infra) -> Infra:
    """Refuse what can be nowhere, which a cloud would only say minutes later."""
    cloud, region, zone = infra.cloud, infra.region, infra.zone
    if cloud in _LOWER:
        region, zone = (part.lower() if part else None for part in (region, zone))
        if re.search(r"[,\s]", f"{region}{zone}"):
            raise ValueError("several places; write each as an item of `any_of`")
    if cloud == "local" and (region or zone):
        raise ValueError("local is this machine, which has no parts; write local")
    if cloud in _NO_ZONES and zone:
        raise ValueError(f"{cloud} has no zones; write {cloud}/{region or 'REGION'}")
    is_zone = _ZONES[cloud].fullmatch(region) if cloud in _ZONES and region else None
    if is_zone:
        raise ValueError(f"{region} is a zone; write {cloud}/{is_zone[1]}/{region}")
    if (
        cloud in _ZONES
        and region is not None
        and zone is not None
        and (not zone.startswith(region) or zone == region)
    ):
        raise ValueError(f"zone {zone} is not in region {region}")
    return Infra(cloud=cloud, region=region, zone=zone)
