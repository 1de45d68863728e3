"""What a cloud's words mean: why a place gave no node.

SkyPilot hands on text only, its own around the cloud's. The codes are those that the clouds
document: EC2 (Amazon EC2 API Reference, "Error codes"), ECS (Alibaba Cloud, "RunInstances: error
codes"), Lambda Cloud (API, "error codes"), Compute Engine and Azure (their pages on errors of
allocation and of quota), Slurm (squeue(1), "JOB REASON CODES", and the messages of its
slurm_errno.c), Kubernetes ("Authorization Overview", "Resource Quotas", "Images") and the
registries behind it; `burst/...` are our own. The first kind whose words occur counts, in this
order: a refusal for missing rights may well talk of instances and limits. Words that say little
(403 Forbidden is an answer to many a thing) come after all others.
"""

from __future__ import annotations

import re

from burst.cost.placement import Reason
from burst.errors import BurstError
from burst.provision.alibaba.codes import REASONS, WIDE
from burst.provision.alibaba.codes import reason_of as reason_of_code

_WORDS: tuple[tuple[Reason, str], ...] = (
    (
        "rights",
        """UnauthorizedOperation AuthFailure AccessDenied InvalidClientTokenId OptInRequired
        SignatureDoesNotMatch ExpiredToken Forbidden.RAM Forbidden.SubUser InvalidAccessKeyId
        IncompleteSignature invalid-api-key account-inactive NoCredentials Invalid-account
        InvalidAccount AccountNotAllowed Invalid-qos InvalidQOS QOSNotAllowed Invalid-partition
        User's-group-not-permitted Access/permission-denied PendingVerification RequestExpired
        UnrecognizedClient Account.Arrearage global/invalid-address IAM_PERMISSION_DENIED
        AuthorizationFailed Reason:-Unauthorized (Blocked) currently-blocked
        Unable-to-locate-credentials
        cannot-create-resource cannot-list-resource cannot-get-resource cannot-patch-resource
        cannot-delete-resource InvalidImageName pull-access-denied manifest-unknown""",
    ),
    ("price", "SpotMaxPriceTooLow InvalidSpotPriceLimit SpotPriceLimit price-limit"),
    (
        "quota",
        """MaxSpotInstanceCountExceeded VcpuLimitExceeded InstanceLimitExceeded QuotaExceed
        ServiceQuota QuotaNotEnough QuotaInsufficient VpcLimitExceeded AddressLimitExceeded
        quota-exceeded Quota-*-exceeded AssocGrp AssocMax QOSGrp QOSMax QOSMin
        MaxJobs violates-accounting/QOS-policy
        PartitionTimeLimit PartitionNodeLimit Requested-time-limit-is-invalid QOSJobLimit
        QOSResourceLimit QOSTimeLimit QOSUsageThreshold AssociationJobLimit
        AssociationResourceLimit AssociationTimeLimit AccountingPolicy MaxBillingPer MaxCpuPer
        MaxGRESPer MaxMemPer MaxNodePer MaxSubmitJobs More-processors-requested-than-permitted
        MaxSpotFleetRequestCountExceeded ResourceLimitExceeded VolumeLimitExceeded
        MaxIOPSLimitExceeded NetworkInterfaceLimitExceeded SecurityGroupLimitExceeded
        InternetGatewayLimitExceeded QUOTA_EXCEEDED exceeding-approved""",
    ),
    (
        "capacity",
        """InsufficientInstanceCapacity InsufficientHostCapacity InsufficientCapacity
        InsufficientReservedInstanceCapacity insufficient-capacity UnfulfillableCapacity NoStock
        OperationDenied.ZoneNotAllowed Zone.NotOnSale sold-out out-of-stock no-capacity
        not-enough-capacity burst/never-ready burst/machine-lost
        Requested-node-configuration-is-not-available
        Requested-partition-configuration-not-available
        Required-partition-not-available Required-node-not-available CPU-count-per-node-can-not-be
        Memory-specification-can-not-be Invalid-generic-resource ReservationCapacityExceeded
        InsufficientFreeAddressesInSubnet not-supported-in-your-requested-Availability-Zone
        ZONE_RESOURCE_POOL_EXHAUSTED SkuNotAvailable AllocationFailed
        OverconstrainedAllocationRequest nodes-are-available
        Insufficient-nvidia.com/gpu Insufficient-cpu Insufficient-memory
        Cluster-may-be-out-of-resources""",
    ),
)


def _pattern(word: str) -> str:
    """Let a hyphen stand for a space too (`no-capacity`, `no capacity`), and a star for a name."""
    return re.escape(word).replace(r"\-", "[- ]").replace(r"\*", r"\S+")


def _words(reason: Reason, words: str) -> str:
    codes = (code for code in REASONS.get(reason, ()) if code not in WIDE)
    return "|".join([*(_pattern(word) for word in words.split()), *map(_code, codes)])


def _code(code: str) -> str:
    return rf"\b{re.escape(code)}(?![A-Za-z])"


_PATTERNS: tuple[tuple[Reason, re.Pattern[str]], ...] = (
    ("quota", re.compile(r"exceeded quota: ")),  # Kubernetes', whatever else one may not list there
    *((reason, re.compile(_words(reason, words), re.IGNORECASE)) for reason, words in _WORDS),
    *((reason_of_code(code), re.compile(_code(code), re.IGNORECASE)) for code in WIDE),
)
LONGEST = 400
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class RefusedError(BurstError):
    """A launch came to nothing. `said` is all that the cloud, and what asked it, said.

    `again_s`: in how many seconds the place expects to have a machine, if it says so.
    """

    def __init__(self, message: str, said: str, *, again_s: float | None = None) -> None:
        super().__init__(message)
        self.said = said
        self.again_s = again_s


def reason_of(text: str) -> Reason:
    """Return what kind of refusal a text is."""
    return next((reason for reason, words in _PATTERNS if words.search(text)), "unknown")


def gist(text: str) -> str:
    """Return the line that says it: the one with the cloud's code, or the last one."""
    lines = [line.strip() for line in _COLOURS.sub("", text).splitlines() if line.strip()]
    said = [line for line in lines if any(words.search(line) for _, words in _PATTERNS)]
    return (said or lines or [""])[-1][:LONGEST]
