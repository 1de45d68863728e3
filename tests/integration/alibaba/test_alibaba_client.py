"""Calls: signed, tried again when that does no harm, and errors in burst's words."""

from __future__ import annotations

import http.client
from datetime import UTC, datetime, timedelta

import pytest

from burst.provision.alibaba.client import PAUSES_S, connect, pages
from burst.provision.alibaba.errors import EcsBusyError, EcsError, EcsSilentError
from ecs_http import KEY_ID, TOKEN, canonical, sign
from ecs_scene import REGION, Scene, Time

pytestmark = pytest.mark.integration


def test_a_signed_call_is_answered(scene: Scene) -> None:
    answer = scene.api().call("DescribeRegions")
    assert {one["RegionId"] for one in answer["Regions"]["Region"]} == set(scene.cloud.zones)


def test_a_wrong_secret_is_refused_as_a_matter_of_rights(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "another")
    with pytest.raises(EcsError) as caught:
        scene.api().call("DescribeRegions")
    assert caught.value.code == "SignatureDoesNotMatch"
    assert caught.value.reason == "rights"
    assert "another" not in str(caught.value)
    assert scene.cloud.calls == []


def test_a_role_s_token_is_sent(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.server.token = TOKEN
    with pytest.raises(EcsError, match=r"InvalidSecurityToken\.Expired"):
        scene.api().call("DescribeRegions")
    monkeypatch.setenv("ALIBABA_CLOUD_SECURITY_TOKEN", TOKEN)
    assert scene.api().call("DescribeRegions")["Regions"]


def post(scene: Scene, *, at: datetime, nonce: str, action: str = "DescribeRegions") -> str:
    """Make a signed call by hand; return the body."""
    host = scene.server.url.removeprefix("http://")
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    headers = {
        "host": host,
        "x-acs-action": action,
        "x-acs-content-sha256": digest,
        "x-acs-date": f"{at:%Y-%m-%dT%H:%M:%SZ}",
        "x-acs-signature-nonce": nonce,
        "x-acs-version": "2014-05-26",
    }
    query = [("RegionId", REGION)]
    signature = sign(canonical("POST", "/", query, headers, digest))
    words = f"Credential={KEY_ID},SignedHeaders={';'.join(headers)},Signature={signature}"
    line = http.client.HTTPConnection(host)
    given = {**headers, "Authorization": f"ACS3-HMAC-SHA256 {words}"}
    line.request("POST", f"/?RegionId={REGION}", headers=given)
    body = line.getresponse().read().decode()
    line.close()
    return body


def test_the_stand_in_takes_no_old_date_and_no_nonce_twice(scene: Scene) -> None:
    now = datetime.now(UTC)
    assert '"Regions"' in post(scene, at=now, nonce="one")
    assert "SignatureNonceUsed" in post(scene, at=now, nonce="one")
    assert "InvalidTimeStamp.Expired" in post(scene, at=now - timedelta(minutes=16), nonce="two")
    assert "InvalidAction.NotFound" in post(scene, at=now, nonce="three", action="Describe")


@pytest.mark.parametrize(
    ("code", "status"),
    [("Throttling.User", 400), ("ServiceUnavailable", 503), ("Whatever", 500)],
)
def test_a_look_is_repeated_with_growing_pauses(scene: Scene, code: str, status: int) -> None:
    scene.cloud.fail("DescribeRegions", code, status, times=3)
    assert scene.api().call("DescribeRegions")["Regions"]
    assert scene.time.slept == [1.0, 2.0, 4.0]


def test_what_the_cloud_asks_to_wait_is_waited(scene: Scene) -> None:
    scene.cloud.fail("DescribeRegions", "Throttling", headers={"x_acs_retry_after": "7500"})
    scene.api().call("DescribeRegions")
    assert scene.time.slept == [7.5]


def test_a_look_that_stays_busy_fails_as_one_that_may_work_later(scene: Scene) -> None:
    scene.cloud.fail("DescribeRegions", "Throttling.Api", times=99)
    with pytest.raises(EcsBusyError, match=r"DescribeRegions: Throttling\.Api"):
        scene.api().call("DescribeRegions")
    assert scene.time.slept == list(PAUSES_S)


def test_what_is_made_twice_if_repeated_is_not_repeated(scene: Scene) -> None:
    scene.cloud.fail("ImportKeyPair", "ServiceUnavailable", 503)
    with pytest.raises(EcsBusyError):
        scene.api().call("ImportKeyPair", KeyPairName="mine", PublicKeyBody="ssh-rsa AAAA")
    assert scene.cloud.count()["ImportKeyPair"] == 1


def test_a_no_is_not_repeated(scene: Scene) -> None:
    scene.cloud.fail("DescribeRegions", "Forbidden.RAM", 403)
    with pytest.raises(EcsError) as caught:
        scene.api().call("DescribeRegions")
    assert caught.value.reason == "rights"
    assert scene.time.slept == []


def test_nobody_there_is_silence(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BURST_ALIBABA_ENDPOINT", "http://127.0.0.1:9")
    time = Time()
    with pytest.raises(EcsSilentError, match="no answer from Alibaba Cloud to DescribeRegions"):
        connect(REGION, time).call("DescribeRegions")
    assert time.slept == list(PAUSES_S)


def test_a_parameter_that_the_api_does_not_have_is_our_bug(scene: Scene) -> None:
    with pytest.raises(AssertionError, match="InstanceKind"):
        scene.api().call("DescribePrice", InstanceKind="large")


def test_all_pages_are_read(scene: Scene) -> None:
    scene.cloud.page = 3
    told = list(pages(scene.api(), "DescribeInstanceTypes"))
    names = [
        one["InstanceTypeId"] for page in told for one in page["InstanceTypes"]["InstanceType"]
    ]
    assert names == list(scene.cloud.kinds)
    assert len(told) == 4
