"""What clouds say, in their own words, and what it means."""

from __future__ import annotations

import pytest

from burst.provision.refusals import gist, reason_of

SAID = [
    (
        "(InsufficientInstanceCapacity) when calling RunInstances: no m6i.large in the zone",
        "capacity",
    ),
    ("(MaxSpotInstanceCountExceeded): Max spot instance count exceeded", "quota"),
    ("VcpuLimitExceeded: You have requested more vCPU capacity than your limit of 0", "quota"),
    ("SpotMaxPriceTooLow: Your Spot request price of 0.01 is lower than the minimum", "price"),
    ("UnauthorizedOperation: You are not authorized; no capacity is left to say more", "rights"),
    ("OperationDenied.NoStock: The requested resource is sold out in the zone", "capacity"),
    ("instance-operations/launch/insufficient-capacity: Not enough capacity", "capacity"),
    ("global/account-inactive: Your account is inactive", "rights"),
    ("burst/never-ready: a machine is not ready after 1500 s", "capacity"),
    ("burst/machine-lost: a machine is not in Lambda's list any more", "capacity"),
    ("QuotaExceed.ElasticQuota: the quota of vCPUs is used up", "quota"),
    ("Forbidden.RAM: User not authorized to operate on the specified resource", "rights"),
    (
        "sbatch: error: Batch job submission failed: Invalid account or account/partition comb...",
        "rights",
    ),
    ("sbatch: error: Batch job submission failed: Invalid partition name specified", "rights"),
    (
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job ...)",
        "quota",
    ),
    ("no-capacity: job 7 is pending (QOSMaxGRESPerUser)", "quota"),
    ("no-capacity: job 7 is pending (Resources)", "capacity"),
    (
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "capacity",
    ),
    *(
        (f"no-capacity: job 7 is pending ({reason})", "quota")
        for reason in (
            "QOSMaxJobsPerUserLimit", "QOSGrpCpuLimit", "QOSResourceLimit", "QOSUsageThreshold",
            "AssocGrpGRES", "AssociationJobLimit", "AssociationTimeLimit", "MaxGRESPerAccount",
            "MaxMemPerLimit", "MaxSubmitJobsPerAccount", "AccountingPolicy",
        )
    ),
    *(
        (f"sbatch: error: Batch job submission failed: {words}", "capacity")
        for words in (
            "Requested partition configuration not available now",
            "Required partition not available (inactive or drain)",
            "Required node not available (down, drained or reserved)",
            "Invalid generic resource (gres) specification",
            "CPU count per node can not be satisfied",
        )
    ),
    ("sbatch: error: Batch job submission failed: Socket timed out on send/recv", "unknown"),
    ("(Unsupported): p4d is not supported in your requested Availability Zone", "capacity"),
    ("(InsufficientFreeAddressesInSubnet): the subnet has not enough free addresses", "capacity"),
    ("(VolumeLimitExceeded): You have exceeded your maximum gp3 storage limit", "quota"),
    ("(RequestLimitExceeded): Request limit exceeded.", "unknown"),  # a pace, no quota
    ("(PendingVerification): Your account is being validated", "rights"),
    ("global/invalid-address: Your billing address is invalid", "rights"),
    ("Account.Arrearage: Your account has an outstanding payment", "rights"),
    ("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: the zone has not enough resources", "capacity"),
    ("QUOTA_EXCEEDED: Quota 'NVIDIA_A100_GPUS' exceeded. Limit: 0.0", "quota"),
    ("SkuNotAvailable: The requested size is not available in the location", "capacity"),
    ("0/3 nodes are available: 1 Insufficient cpu, 2 node(s) had untolerated taint", "capacity"),
    ("0/2 nodes are available: 2 Insufficient nvidia.com/gpu. preemption: 0/2", "capacity"),
    ("Timed out while waiting for nodes to start. Cluster may be out of resources", "capacity"),
    (
        'pods "toy-head" is forbidden: exceeded quota: team, requested: pods=1, used: pods=4',
        "quota",
    ),
    ('pods is forbidden: exceeded quota: team\nUser "me" cannot list resource "nodes"', "quota"),
    ("HttpError 403: Forbidden. Quota 'PREEMPTIBLE_NVIDIA_A100_GPUS' exceeded. Limit: 0", "quota"),
    ("403 Forbidden\nAlibaba Cloud refused it: OperationDenied.NoStock: none", "capacity"),
    ("Forbidden.RiskControl: This operation is forbidden", "rights"),
    ("OperationDenied: Sales of this resource are temporarily suspended", "capacity"),
    ("An error occurred (Blocked) when calling RunInstances: This account is currently", "rights"),
    ("botocore.exceptions.NoCredentialsError: Unable to locate credentials", "rights"),
    ('pods is forbidden: User "me" cannot create resource "pods" in API group ""', "rights"),
    ('(401)\nReason: Unauthorized\nHTTP response body: {"kind":"Status"}', "rights"),
    ('ErrImagePull: failed to pull "reg/x": pull access denied, repository does not', "rights"),
    ("InvalidImageName: Failed to apply default image tag", "rights"),
    ('ErrImagePull: failed to pull "reg/x": dial tcp 10.0.0.9:443: i/o timeout', "unknown"),
    ("RuntimeError: setup failed with exit code 1", "unknown"),
    ("", "unknown"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), SAID)
def test_words_have_one_meaning(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_the_line_with_the_code_is_what_people_are_shown() -> None:
    text = "I 12:00 trying us-east-1a\n  InsufficientInstanceCapacity: none\nFailed to launch\n"
    assert gist(text) == "InsufficientInstanceCapacity: none"
    assert gist("one\ntwo\n") == "two"
    assert gist("") == ""
    assert gist("\x1b[2mW 12-02 create: NoStock\x1b[0m\n") == "W 12-02 create: NoStock"
