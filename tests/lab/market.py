"""What an empty home needs so that SkyPilot finds a small market in it and asks for no more."""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterable
from pathlib import Path

import lambda_emulator
from ecs_http import KEY_ID, SECRET
from tests.lab.hosts import GATEWAY

REGIONS = {  # the zones' ids, which catalogs use; moto's own
    "us-east-1": ("use1-az6", "use1-az1", "use1-az2"),
    "us-west-2": ("usw2-az2", "usw2-az1"),
}
ENDPOINT = f"http://{GATEWAY}:5555"
ECS_PORT = 5556
ECS_ENDPOINT = f"http://{GATEWAY}:{ECS_PORT}"
LAMBDA_PORT = 5557
LAMBDA_URL = f"http://{GATEWAY}:{LAMBDA_PORT}{lambda_emulator.API}"
BUCKET = "burst-lab"
ROLE = "skypilot-v1"
VPC = "lab-vpc"
IMAGE = "ami-0b0b0b0b0b0b0b0b0"
# type, GPU, how many, CPUs, GB, GPU memory in GB, dollars per hour on demand, and spot
MACHINES = (
    ("p4d.24xlarge", "A100", 8, 96, 1152, 40, 32.77, 11.57),
    ("g5.xlarge", "A10G", 1, 4, 16, 24, 1.006, 0.35),
    ("m6i.large", "", "", 2, 8, 0, 0.096, 0.034),
    ("m6i.xlarge", "", "", 4, 16, 0, 0.192, 0.068),
)
COLUMNS = [
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "Price",
    "SpotPrice",
    "Region",
    "AvailabilityZone",
    "Arch",
    "LocalDiskType",
    "NVMeSupported",
    "LocalDiskSize",
    "LocalDiskCount",
    "MaximumEfaInterfaces",
]
LAMBDA_COLUMNS = [
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "vCPUs",
    "MemoryGiB",
    "Price",
    "Region",
    "GpuInfo",
    "SpotPrice",
]
CONFIG = f"""aws:
  vpc_names: {VPC}
  use_internal_ips: true
  use_ssm: false
  remote_identity: SERVICE_ACCOUNT
"""
JOBS = """jobs:
  controller:
    consolidation_mode: true
"""
BURST_PLUGIN = "burst.provision.sky_plugin.plugin.BurstPlugin"
NETWORK_PLUGIN = "tests.lab.plugin.OfflineNetworkCheck"


def furnish(home: Path, *, managed_jobs: bool = False) -> None:
    """Write catalogs, credentials and settings into an empty home."""
    catalogs = home / ".sky/catalogs/v8"
    _table(catalogs / "aws/vms.csv", COLUMNS, _offers())
    tags = [f"skypilot:custom-{kind}-ubuntu" for kind in ("cpu", "gpu")]
    tags.append("skypilot:custom-gpu-ubuntu-cuda13")
    images = [[t, r, "ubuntu", "22.04", IMAGE, "20250101", t] for t in tags for r in REGIONS]
    head = ["Tag", "Region", "OS", "OSVersion", "ImageId", "CreationDate", "BaseImageId"]
    _table(catalogs / "aws/images.csv", head, images)
    head = ["InstanceType", "SpotInstanceCode", "OnDemandInstanceCode"]
    _table(catalogs / "aws/instance_quota_mapping.csv", head, [])
    _table(catalogs / "lambda/vms.csv", LAMBDA_COLUMNS, _offers_of_lambda())
    gpus = sorted({(gpu, memory) for _, gpu, _, _, _, memory, _, _ in MACHINES if gpu})
    head = ["AcceleratorName", "Clouds"]
    _table(catalogs / "common/accelerators.csv", head, [[gpu, "['AWS']"] for gpu, _ in gpus])
    head = ["GPU", "MemoryGB", "Manufacturer"]
    _table(catalogs / "common/metadata.csv", head, [[g, m, "NVIDIA"] for g, m in gpus])
    tomorrow = time.time() + 86_400
    known = {"release_version": "0.14.1", "cached_at": tomorrow}
    (home / ".sky/version_cache.json").write_text(json.dumps(known))
    (home / ".sky/config.yaml").write_text(CONFIG + (JOBS if managed_jobs else ""))
    plugins = [BURST_PLUGIN, *([NETWORK_PLUGIN] if managed_jobs else [])]
    (home / "plugins.yaml").write_text(json.dumps({"plugins": [{"class": p} for p in plugins]}))
    (home / ".aliyun").mkdir()
    keys = {"name": "lab", "mode": "AK", "access_key_id": KEY_ID, "access_key_secret": SECRET}
    (home / ".aliyun/config.json").write_text(json.dumps({"current": "lab", "profiles": [keys]}))
    (home / ".lambda_cloud").mkdir()
    (home / ".lambda_cloud/lambda_keys").write_text(f"api_key = {lambda_emulator.KEY}\n")
    (home / ".aws").mkdir()
    (home / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = AKIALABLABLABLABLAB0\naws_secret_access_key = lab\n"
        f"region = us-east-1\nendpoint_url = {ENDPOINT}\n"
    )


def _offers() -> Iterable[list[object]]:
    for region, zones in REGIONS.items():
        for number, zone in enumerate(zones):
            dearer = (1.0 if region == "us-east-1" else 1.1) * (1 + 0.05 * number)
            for kind, gpu, count, cpus, memory, gpu_gb, usd, spot in MACHINES:
                info = {
                    "Gpus": [{"Name": gpu, "Manufacturer": "NVIDIA", "Count": count,
                              "MemoryInfo": {"SizeInMiB": gpu_gb * 1024}}],
                    "TotalGpuMemoryInMiB": gpu_gb * 1024 * (count or 0),
                }  # fmt: skip
                what = [kind, gpu, count, cpus, memory, str(info) if gpu else ""]
                price = [usd if region == "us-east-1" else round(usd * 1.1, 4)]
                yield [*what, *price, round(spot * dearer, 4), region, zone, "x86_64", *[""] * 5]


def _offers_of_lambda() -> Iterable[list[object]]:
    """Yield the machine without a GPU, at the price of some months ago."""
    kind = "cpu_4x_general"
    cpus, memory, _, cents = lambda_emulator.TYPES[kind]
    for region in lambda_emulator.REGIONS:
        yield [kind, "", "", cpus, memory, cents / 200, region, "", ""]


def _table(path: Path, head: Iterable[str], rows: Iterable[Iterable[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(list(head))
        out.writerows(rows)


def seed() -> None:
    """Make what an account has before anybody rents: networks, the role of machines, a bucket."""
    import boto3

    for number, region in enumerate(REGIONS, 1):
        ec2 = boto3.client("ec2", region_name=region)
        name = [{"ResourceType": "vpc", "Tags": [{"Key": "Name", "Value": VPC}]}]
        vpc = ec2.create_vpc(CidrBlock=f"10.{number}.0.0/16", TagSpecifications=name)["Vpc"]
        zones = ec2.describe_availability_zones()["AvailabilityZones"]
        for part, zone in enumerate(zones[:8]):
            ec2.create_subnet(
                VpcId=vpc["VpcId"],
                CidrBlock=f"10.{number}.{16 * part}.0/20",
                AvailabilityZone=zone["ZoneName"],
            )
    iam = boto3.client("iam")
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"},
             "Action": "sts:AssumeRole"}  # fmt: skip
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    iam.create_role(RoleName=ROLE, AssumeRolePolicyDocument=document)
    iam.create_instance_profile(InstanceProfileName=ROLE)
    iam.add_role_to_instance_profile(InstanceProfileName=ROLE, RoleName=ROLE)
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket=BUCKET)


if __name__ == "__main__":
    seed()
