"""What can go wrong with a call to Alibaba Cloud."""

from __future__ import annotations

from burst.cost.placement import Reason
from burst.errors import BurstError, TransientError
from burst.provision.alibaba.codes import BUSY, among, reason_of


class EcsError(BurstError):
    """Alibaba Cloud said no. `code` is its own word for why."""

    def __init__(self, action: str, code: str, said: str, request_id: str = "") -> None:
        where = f" (request {request_id})" if request_id else ""
        super().__init__(f"Alibaba Cloud refused {action}: {code}: {said}{where}")
        self.action = action
        self.code = code

    @property
    def reason(self) -> Reason:
        """Why a place gave nothing, in burst's words."""
        return reason_of(self.code)


class EcsBusyError(EcsError, TransientError):
    """The same call may work later."""


class EcsSilentError(TransientError):
    """No answer: whether the call was carried out is not known."""


def refusal(action: str, status: int, code: str, said: str, request_id: str) -> EcsError:
    """Return the error that an answer stands for. 5xx says nothing against the call itself."""
    busy = status >= 500 or among(code, BUSY)  # noqa: PLR2004 - HTTP: server errors
    kind = EcsBusyError if busy else EcsError
    return kind(action, code, said, request_id)
