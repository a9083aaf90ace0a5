"""The parent's side of the connection: a worker that prints, dies, hangs or answers nonsense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from metlmon.pool import connection as line
from metlmon.pool.connection import PoolConnection, PoolRefused, command
from metlmon.pool.types import PoolError
from tests.support.patience import PATIENCE

AD = '{"cluster": 12, "proc": 0, "status": 1, "owner": "anna", "matches": 2, "rejection": "none"}'

FAKE = f"""
import json, os, signal, sys, time
def say(text): sys.stdout.write(text + "\\n"); sys.stdout.flush()
def err(text): sys.stderr.write(text + "\\n"); sys.stderr.flush()
for text in sys.stdin:
    request = json.loads(text)
    op, number = request["op"], ([None] + request["args"])[-2]
    if op == "query": say('{{"value": [{AD}]}}')
    elif number == 1: err("ERROR \\"Assertion\\" at line 7"); os._exit(4)
    elif number == 2: time.sleep(1000)
    elif number == 3: say("this is no json")
    elif number == 4: say('{{"error": "refused", "text": "Error when performing"}}')
    elif number == 5:
        err("Warning: one"); err("ERROR: two"); say('{{"error": "other"}}')
    elif number == 6: say('{{"error": "no-bindings", "text": "No module named x"}}')
    elif number == 7: say(json.dumps({{"value": str(os.getpid())}}))
    elif number == 8: sys.stdout.write('{{"value": '); sys.stdout.flush(); os._exit(0)
    elif number == 9: os.kill(os.getpid(), signal.SIGABRT)
    else: say('{{"value": null}}')
"""


@pytest.fixture
def fake() -> PoolConnection:
    connection = PoolConnection([sys.executable, "-I", "-c", FAKE])
    yield connection
    connection.close()


def run_worker(argv: Sequence[str], request: bytes, **more: Any) -> CompletedProcess[bytes]:
    return subprocess.run(argv, input=request, capture_output=True, timeout=30, **more)


def gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


def test_answer_becomes_a_record(fake: PoolConnection) -> None:
    (job,) = fake.query([9], [12])
    assert (job.cluster, job.proc, job.owner, job.priority, job.matches) == (12, 0, "anna", 0, 2)
    assert job.rejection == "none"


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (1, r"ended unexpectedly \(status 4\).*Assertion"),
        (9, r"ended unexpectedly \(status -6\)"),
        # In the middle of an answer, or with an invalid one.
        (8, "ended unexpectedly"),
        (3, "ended unexpectedly"),
    ],
)
def test_dead_worker_is_reported_and_restarted(
    fake: PoolConnection, number: int, message: str
) -> None:
    with pytest.raises(PoolError, match=message):
        fake.act("hold", number, 0)
    assert fake.act("hold", 7, 0).isdigit()


def test_hanging_schedd_ends_the_worker(
    fake: PoolConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = int(fake.act("hold", 7, 0))
    monkeypatch.setattr(line, "OTHER_SECONDS", 0.2)
    with pytest.raises(PoolError, match="no answer in 0 s; whether it was done will show"):
        fake.act("hold", 2, 0)
    assert gone(process)
    monkeypatch.setattr(line, "OTHER_SECONDS", 20.0)
    assert fake.act("hold", 7, 0).isdigit()


def test_errors_have_a_remedy(fake: PoolConnection) -> None:
    with pytest.raises(PoolRefused, match="SEC_CLIENT_AUTHENTICATION_METHODS") as caught:
        fake.act("hold", 4, 0)
    assert caught.value.schedd_text == "Error when performing"
    with pytest.raises(PoolError, match="pip install htcondor"):
        fake.act("hold", 6, 0)


def test_output_of_an_earlier_operation_is_not_quoted(fake: PoolConnection) -> None:
    with pytest.raises(PoolError, match="failed without a word"):
        fake.act("hold", 5, 0)
    with pytest.raises(PoolError) as caught:
        fake.act("hold", 9, 0)
    assert "two" not in str(caught.value)


def test_closing_leaves_no_process(fake: PoolConnection) -> None:
    process = int(fake.act("hold", 7, 0))
    fake.close()
    assert gone(process)
    with pytest.raises(PoolError, match="closed"):
        fake.act("hold", 7, 0)
    fake.close()


def test_closing_ends_a_hanging_operation(fake: PoolConnection) -> None:
    process = int(fake.act("hold", 7, 0))
    failed: list[PoolError] = []

    def wait() -> None:
        try:
            fake.act("hold", 2, 0)
        except PoolError as error:
            failed.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    deadline = time.monotonic() + PATIENCE
    while not fake._line.locked() and time.monotonic() < deadline:
        time.sleep(0.01)
    fake.close()
    waiting.join(PATIENCE)
    assert failed
    assert gone(process)


def test_many_threads_take_turns(fake: PoolConnection) -> None:
    received: list[str] = []

    def ask() -> None:
        received.extend(fake.act("hold", 7, 0) for _ in range(20))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len(received) == 80
    assert len(set(received)) == 1


def test_worker_that_cannot_be_started() -> None:
    with pytest.raises(PoolError, match="cannot be started"):
        PoolConnection(["/nonexistent/python"]).where()


def test_worker_imports_nothing_from_the_working_directory(tmp_path: Path) -> None:
    for name in ("json", "htcondor2", "metlmon", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("import os; os._exit(33)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "CONDOR_CONFIG": "/dev/null"}
    request = b'{"op": "no such", "args": []}\n'
    ran = run_worker(command(), request, cwd=tmp_path, env=environment)
    assert ran.returncode == 0
    assert b'"error":"request"' in ran.stdout


def test_working_directory_is_not_on_the_import_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", str(tmp_path), "relative", *sys.path])
    places = json.loads(command()[-1])
    assert str(tmp_path) not in places
    assert all(os.path.isabs(place) for place in places)


def test_answers_alone_are_on_the_workers_standard_output() -> None:
    code = (
        "import os, sys; from metlmon.pool import worker\n"
        "class Loud:\n"
        "    def __init__(self): os.write(1, b'C++ says\\n'); print('python says', flush=True)\n"
        "    def where(self): os.write(1, b'more\\n'); return 5\n"
        "worker.serve.__defaults__ = (Loud,)\n"
        "worker.main()\n"
    )
    root = str(Path(__file__).resolve().parents[2])
    ran = run_worker([sys.executable, "-c", code], b'{"op": "where", "args": []}\n', cwd=root)
    assert ran.stdout == b'{"value":5}\n'
    assert b"C++ says" in ran.stderr
    assert b"more" in ran.stderr


def test_missing_temporary_directory_loses_only_error_output(
    fake: PoolConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unwritable(*_: object, **__: object) -> None:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(line.tempfile, "TemporaryFile", unwritable)
    assert fake.query([1], []) != ()
    with pytest.raises(PoolError, match=r"^HTCondor's bindings ended unexpectedly \(status 4\)$"):
        fake.job(1, 0)
