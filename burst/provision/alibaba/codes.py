"""What the error codes of ECS and VPC mean.

The codes are those that Alibaba Cloud documents ("RunInstances: error codes", "CreateVpc: error
codes", "Throttling"). A code stands for those that begin with it too, up to a dot: `Forbidden` is
also `Forbidden.RAM`. The first kind in which a code is found counts.
"""

from __future__ import annotations

from collections.abc import Mapping

from burst.cost.placement import Reason

REASONS: Mapping[Reason, tuple[str, ...]] = {
    "price": ("InvalidSpotPriceLimit", "OperationDenied.SpotPriceLowerThanPublicPrice"),
    "quota": (
        "QuotaExceed",
        "QuotaExceeded",
        "SecurityGroupInstanceLimitExceed",
        "InstanceLimitExceeded",
    ),
    "rights": (
        "InvalidAccessKeyId",
        "SignatureDoesNotMatch",
        "InvalidTimeStamp",
        "InvalidSecurityToken",
        "Forbidden",
        "NoPermission",
        "InvalidAccountStatus",
        "InsufficientBalance",
        "RealNameAuthenticationError",
        "SecurityRisk.3DVerification",
        "InvalidSpotAuthorized",
        "RegionUnauthorized",
        "Zone.NotOpen",
    ),
    "capacity": (
        "OperationDenied",  # .NoStock, .ZoneNotAllowed; alone: sales of the type are suspended
        "Zone.NotOnSale",
        "InvalidResourceType.NotSupported",
        "InstanceType.Offline",
        "InvalidInstanceType.ZoneNotSupported",
        "InvalidInstanceType.NotSupported",
        "InvalidInstanceType.ValueNotSupported",
        "InvalidInstanceType.PhasedOut",
        "InvalidSystemDiskCategory",
        "InvalidDiskCategory",
        "CategoryNotSupported",
    ),
}
WIDE = ("Forbidden", "OperationDenied")  # in a text of another cloud they may be anything
OTHER_DISK = ("InvalidSystemDiskCategory", "InvalidDiskCategory", "CategoryNotSupported")
BUSY = (  # the same call may work in a moment
    "Throttling",
    "ServiceUnavailable",
    "InternalError",
    "IncorrectInstanceStatus",
    "IncorrectVpcStatus",
    "IncorrectVSwitchStatus",
    "IncorrectStatus",
    "LastOrderProcessing",
    "Idempotence.Processing",
    "IdempotentProcessing",
    "SignatureNonceUsed",
    "OperationConflict",
    "TaskConflict",
)
IN_USE = ("DependencyViolation",)  # something that is not ours, or not gone yet, needs it
GONE = ("InvalidInstanceId.NotFound", "InvalidVSwitchId.NotFound", "InvalidVpcId.NotFound",
        "InvalidVpcID.NotFound", "InvalidVSwitchID.NotFound", "InvalidSecurityGroupId.NotFound",
        "InvalidKeyPairName.NotFound", "InvalidKeyPair.NotFound", "Forbidden.VpcNotFound",
        "InvalidSourceGroupId.NotFound")  # fmt: skip


def among(code: str, codes: tuple[str, ...]) -> bool:
    """Whether a code is one of some.

    >>> among("Throttling.User", ("Throttling",)), among("ThrottlingX", ("Throttling",))
    (True, False)
    """
    return any(code == one or code.startswith(f"{one}.") for one in codes)


def reason_of(code: str) -> Reason:
    """Return why a place gave nothing.

    >>> reason_of("OperationDenied.NoStock"), reason_of("MissingParameter")
    ('capacity', 'unknown')
    """
    return next((reason for reason, codes in REASONS.items() if among(code, codes)), "unknown")
