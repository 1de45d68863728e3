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
    ("RuntimeError: setup failed with exit code 1", "unknown"),
    ("", "unknown"),
]


@pytest.mark.parametrize(("text", "reason"), SAID)
def test_words_have_one_meaning(text: str, reason: str) -> None:
    assert reason_of(text) == reason


def test_the_line_with_the_code_is_what_people_are_shown() -> None:
    text = "I 12:00 trying us-east-1a\n  InsufficientInstanceCapacity: none\nFailed to launch\n"
    assert gist(text) == "InsufficientInstanceCapacity: none"
    assert gist("one\ntwo\n") == "two"
    assert gist("") == ""
    assert gist("\x1b[2mW 12-02 create: NoStock\x1b[0m\n") == "W 12-02 create: NoStock"
