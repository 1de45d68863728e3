"""Notices, asked for at a metadata service on the loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from burst.agent.notices import Ec2, Ecs, Metadata, Notices, Slurm, source


class Service(ThreadingHTTPServer):
    """A cloud's metadata service, as far as notices go; words as its documentation has them."""

    def __init__(self, name: str, path: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.header = f"X-{name}-metadata-token"
        self.path = path
        self.refuses = 401
        self.answer: tuple[int, str] = (404, "")
        self.tokens: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Service

    def log_message(self, *_: object) -> None:
        pass

    def _say(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def do_PUT(self) -> None:
        wish = self.headers.get(f"{self.server.header}-ttl-seconds")
        if self.path != "/latest/api/token" or not wish:
            self._say(400, "")
            return
        self.server.tokens.append(f"token-{len(self.server.tokens)}")
        self._say(200, self.server.tokens[-1])

    def do_GET(self) -> None:
        given = self.headers.get(self.server.header)
        if not self.server.tokens or given != self.server.tokens[-1]:
            self._say(self.server.refuses, "")
            return
        assert self.path == self.server.path
        self._say(*self.server.answer)


@contextmanager
def served(name: str, path: str) -> Iterator[Service]:
    made = Service(name, path)
    work = threading.Thread(target=made.serve_forever, args=(0.05,))
    work.start()
    yield made
    made.shutdown()
    work.join()
    made.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    with served("aws-ec2", "/latest/meta-data/spot/instance-action") as made:
        yield made


@pytest.fixture
def ecs() -> Iterator[Service]:
    with served("aliyun-ecs", "/latest/meta-data/instance/spot/termination-time") as made:
        yield made


def looked(service: Service, times: int = 1, kind: type[Metadata] = Ec2) -> Notices:
    made = Notices(kind(service.url), "aws")
    for _ in range(times):
        made.look()
    return made


def test_none_is_none(service: Service) -> None:
    assert looked(service).newest() is None
    assert len(service.tokens) == 1


def test_a_notice_says_what_time_is_left(service: Service) -> None:
    ends = datetime.now(UTC) + timedelta(seconds=120)
    said = {"action": "terminate", "time": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
    service.answer = (200, json.dumps(said))
    found = looked(service).newest()
    assert found is not None
    assert found["source"] == "aws"
    assert 117 < found["left_s"] <= 120


@pytest.mark.parametrize(
    "answer",
    [
        (500, ""),
        (200, ""),
        (200, "<html>not found</html>"),
        (200, "[]"),
        (200, '{"action": "terminate"}'),
        (200, '{"action": "terminate", "time": "soon"}'),
        (200, '{"action": "terminate", "time": "2026-01-05T18:02:00"}'),
    ],
)
def test_what_is_not_a_notice_is_none(service: Service, answer: tuple[int, str]) -> None:
    service.answer = answer
    assert looked(service).newest() is None


def test_a_notice_of_alibaba_cloud(ecs: Service) -> None:
    assert looked(ecs, kind=Ecs).newest() is None
    ends = datetime.now(UTC) + timedelta(seconds=300)
    ecs.answer = (200, f"{ends:%Y-%m-%dT%H:%M:%SZ}\n")
    found = looked(ecs, kind=Ecs).newest()
    assert found is not None
    assert 297 < found["left_s"] <= 300


@pytest.mark.parametrize(
    "answer", [(200, ""), (200, "soon"), (200, "2026-01-05T18:02:00"), (500, ""), (200, "<html>")]
)
def test_what_is_no_notice_of_alibaba_cloud(ecs: Service, answer: tuple[int, str]) -> None:
    ecs.answer = answer
    assert looked(ecs, kind=Ecs).newest() is None


def test_a_token_that_alibaba_cloud_forbids_is_renewed(ecs: Service) -> None:
    ecs.refuses, ecs.answer = 403, (200, "2020-01-05T18:02:00Z")
    made = looked(ecs, kind=Ecs)
    assert made.newest() == {"left_s": 0.0, "source": "aws"}
    other = Notices(Ecs(ecs.url, "old"), "alibaba")
    other.look()
    assert other.newest() is None
    other.look()
    assert other.newest() == {"left_s": 0.0, "source": "alibaba"}


def test_a_machine_without_the_service_has_none() -> None:
    made = Notices(Ec2("http://127.0.0.1:9"), "aws")
    made.look()
    assert made.newest() is None


def test_a_token_that_is_too_old_is_renewed(service: Service) -> None:
    made = looked(service)
    service.tokens.append("another")  # what was given is no good any more
    service.answer = (200, '{"action": "stop", "time": "2020-01-05T18:02:00Z"}')
    made.look()
    assert made.newest() is None
    made.look()
    assert made.newest() == {"left_s": 0.0, "source": "aws"}


def test_it_is_asked_for_in_the_background(service: Service) -> None:
    service.answer = (200, '{"action": "stop", "time": "2020-01-05T18:02:00Z"}')
    found = threading.Event()

    class Told(Ec2):
        def __call__(self) -> datetime | None:
            at = Ec2.__call__(self)
            found.set()
            return at

    made = Notices(Told(service.url), "aws")
    made.start()
    assert found.wait(5)
    made.stop()


class Queue:
    """Slurm, as far as a job's end goes."""

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.asked = threading.Event()
        self.source = Slurm("7", self.ask, now=lambda: datetime.fromtimestamp(1000, UTC))

    def ask(self, job: str) -> str:
        assert job == "7"
        answer = self.answers.pop(0)
        self.asked.set()
        if answer == "down":
            raise OSError("squeue: Unable to contact slurm controller")
        return answer


def test_a_jobs_end_is_a_notice_once_it_is_near() -> None:
    queue = Queue("1181\n", "1180\n", "900\n", "NONE\n", "N/A\n", "\n")
    said = [queue.source() for _ in range(6)]
    assert said[:3] == [None, datetime.fromtimestamp(1180, UTC), datetime.fromtimestamp(900, UTC)]
    assert said[3:] == [None, None, None]


def test_a_queue_that_does_not_answer_gives_no_notice() -> None:
    queue = Queue("down", "1100")
    made = Notices(queue.source, "slurm")
    made.look()
    assert made.newest() is None
    made.look()
    assert made.newest() == {"left_s": 0.0, "source": "slurm"}  # this machine's clock is later


def test_a_queues_signal_has_it_asked_at_once() -> None:
    queue = Queue("9999999999", "1100")
    made = Notices(queue.source, "slurm")
    made.start()
    assert queue.asked.wait(5)
    queue.asked.clear()
    made.hurry()
    assert queue.asked.wait(5)  # the next look of its own would be half a minute later
    made.stop()


def test_only_clouds_that_give_notice_are_asked() -> None:
    assert source("local", {}) is None
    assert source("slurm", {}) is None
    assert isinstance(source("slurm", {"SLURM_JOB_ID": "7"}), Slurm)
    assert source("aws", {}) == Ec2("http://169.254.169.254")
    other = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://[fd00:ec2::254]/"}
    assert source("aws", other) == Ec2("http://[fd00:ec2::254]")
    assert source("alibaba", {}) == Ecs("http://100.100.100.200")
    assert source("alibaba", {"BURST_ALIBABA_METADATA": "http://here/"}) == Ecs("http://here")
