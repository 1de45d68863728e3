"""Where a machine may be: `infra: cloud/region/zone`, or `cloud`, `region` and `zone` apart."""

from __future__ import annotations

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
_SAME = {"kubernetes": "k8s"}
_MEANT = {
    "amazon": "aws", "ec2": "aws", "google": "gcp", "gce": "gcp", "microsoft": "azure",
    "aliyun": "alibaba", "alicloud": "alibaba", "lambdalabs": "lambda", "digitalocean": "do",
    "eks": "k8s", "gke": "k8s", "oracle": "oci", "on-prem": "ssh",
}  # fmt: skip
_WHOLE_REST = ("k8s", "ssh")  # a context or pool name may hold slashes
_ZONE_BEGINS_WITH_REGION = ("alibaba", "aws", "gcp", "ibm")
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
    """Read `cloud/region/zone`; ValueError says what is wrong."""
    parts = [part.strip() for part in text.split("/")]
    cloud = None if parts[0] == "*" else _cloud(parts[0])
    if cloud in _WHOLE_REST:
        rest = "/".join(parts[1:])
        if len(parts) > 1 and not all(parts[1:]):
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
        fields.problem("zone", str(error))
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
    """Refuse a zone that lies in another region, which a cloud would only say minutes later."""
    if (
        infra.cloud in _ZONE_BEGINS_WITH_REGION
        and infra.region is not None
        and infra.zone is not None
        and (not infra.zone.startswith(infra.region) or infra.zone == infra.region)
    ):
        raise ValueError(f"zone {infra.zone} is not in region {infra.region}")
    return infra
