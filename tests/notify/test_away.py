"""Notifications of the dashboard and ``status``: a real terminal's bytes and a real listener."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from metlmon.cli import Exit
from metlmon.config.loader import read_webhook
from metlmon.config.settings import NotifySettings
from metlmon.health.changes import load_last_seen
from metlmon.live.dagdir_reader import DagdirReader
from metlmon.live.feed import NullFeed
from metlmon.live.session import Session
from metlmon.notify.events import NotifyEvent
from metlmon.pool.client import FeedAndPool
from screens.app import AppOptions
from tests.support.commands import Captured, run_command
from tests.support.dagdir_builder import DAG, NODE, Dagdir
from tests.support.event_logs import Log
from tests.support.fake_home import FakeHome, summary
from tests.support.faulty_tracker import FaultyTracker, SlowAnswer, web_listener
from tests.support.patience import PATIENCE
from tests.support.recordings import FIXTURES
from tests.support.screen_view import opened
from tests.support.terminal import PseudoTerminal, terminal_environment

REASON = "Job has gone over memory limit of 4096 megabytes"


class LiveDagdir(Dagdir):
    """An ensemble of one run whose first job was submitted half an hour ago."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, DAG)
        begun = datetime.now() - timedelta(minutes=30)
        self.log = Log().submit(1, NODE, at=f"{begun:%Y-%m-%d %H:%M:%S}").execute(1)
        self.write("metl.log", self.log.data)

    def hold(self) -> None:
        self.log.hold(1, 34, REASON)
        self.write("metl.log", self.log.data)

    def release(self) -> None:
        self.log.release(1)
        self.write("metl.log", self.log.data)


@pytest.fixture(name="dagdir")
def _dagdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveDagdir:
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.delenv("TMUX", raising=False)
    return LiveDagdir(tmp_path / "lr")


def configure(tmp_path: Path, *lines: str) -> None:
    file = tmp_path / "CONFIG/metlmon/metlmon.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["[notify]", *lines]))


def dashboard(dagdir: Dagdir, *options: str) -> PseudoTerminal:
    argv = [sys.executable, "-m", "metlmon", "watch", str(dagdir.path), *options]
    return PseudoTerminal(argv, (80, 24), terminal_environment(), cwd=Path(__file__).parents[2])


def test_dashboard_notifies_terminal_and_webhook_once(tmp_path: Path, dagdir: LiveDagdir) -> None:
    with web_listener() as listener:
        url = f"{listener.url}/hook"
        configure(tmp_path, 'terminal = ["bell", "osc9"]', f'webhook = "{url}"', "interval = 0")
        with dashboard(dagdir) as screen:
            screen.wait_for("running")
            assert b"\x1b]9;" not in screen.bytes
            dagdir.hold()
            shown = b"\a\x1b]9;metlmon: lr: held: "
            screen.until(lambda: shown in screen.bytes and listener.calls, "no notification")
            text = screen.bytes.partition(shown)[2].partition(b"\a")[0].decode()
            assert "memory" in text
            assert text.endswith(" · run0")
            screen.type("8")
            screen.wait_for("webhook: http://127.0.0.1")
            assert "/hook" not in screen.text
            screen.type("Q")
            assert screen.end() == 0
            assert screen.restored()
        with dashboard(dagdir) as screen:
            screen.wait_for("held")
            dagdir.release()
            screen.wait_for("nothing held")  # The notifier has its Health now.
            dagdir.hold()
            screen.until(lambda: len(listener.calls) > 1, "nothing for what came again")
            screen.type("Q")
            screen.end()
            assert b"\x1b]9;" in screen.bytes
    documents = [request.json() for request in listener.calls]
    assert [event["event"] for d in documents for event in d["events"]] == ["held", "held"]
    assert documents[0]["ensemble"] == "lr"
    assert {file.name for file in dagdir.path.iterdir()} == {"run.dag", "metl.log"}


def test_dead_listener_delays_no_key_bell_or_exit(tmp_path: Path, dagdir: LiveDagdir) -> None:
    dagdir.hold()
    with web_listener(SlowAnswer()) as listener:
        configure(tmp_path, 'terminal = ["bell"]', f'webhook = "{listener.url}/"')
        with dashboard(dagdir) as screen:
            screen.until(lambda: listener.calls, "nothing was posted")
            assert b"\a" in screen.bytes
            screen.type("?")
            screen.wait_for("Keys")
            screen.type("Q")
            assert screen.end() == 0
    # The next process sends the undelivered message.
    with web_listener() as listener:
        configure(tmp_path, f'webhook = "{listener.url}/"')
        with dashboard(dagdir) as screen:
            screen.until(lambda: listener.calls, "it was lost")


def test_event_before_the_exit_is_sent(tmp_path: Path, dagdir: LiveDagdir) -> None:
    with web_listener() as listener:
        configure(tmp_path, f'webhook = "{listener.url}/"', "interval = 3600")
        with dashboard(dagdir, "--exit-on", "held") as screen:
            screen.wait_for("running")
            dagdir.hold()
            assert screen.end() == Exit.HELD
    (request,) = listener.calls
    assert request.json()["events"][0]["event"] == "held"


def test_status_notifies_once_in_cron(tmp_path: Path, dagdir: LiveDagdir, capsys: Captured) -> None:
    dagdir.hold()
    with web_listener() as listener:
        configure(tmp_path, f'webhook = "{listener.url}/"', "interval = 0")
        for words in ("status", "status --notify", "status --json --notify", "status --notify"):
            assert run_command(words, capsys, dagdir.path)[0] == Exit.OK
        assert len(listener.calls) == 1
        dagdir.release()
        run_command("status --notify", capsys, dagdir.path)
        dagdir.hold()
        run_command("status --notify", capsys, dagdir.path)
        assert len(listener.calls) == 2
    dagdir.release()
    run_command("status --notify", capsys, dagdir.path)
    dagdir.hold()
    code, out, err = run_command("status --notify", capsys, dagdir.path)
    assert code == Exit.OK
    assert "run0" in out
    assert "notifications: webhook http://127.0.0.1:" in err
    assert "no connection" in err


def test_trial_message_reaches_every_channel(
    tmp_path: Path, dagdir: LiveDagdir, capsys: Captured
) -> None:
    with web_listener() as listener:
        file = tmp_path / "got"
        command = f"command = ['sh', '-c', 'echo $METLMON_TITLE > {file}']"
        configure(tmp_path, f'webhook = "{listener.url}/secret"', command)
        code, out, _ = run_command("notify", capsys)
        assert code == Exit.OK
        assert file.read_text() == "test\n"
        dagdir.hold()
        run_command("notify", capsys, dagdir.path)
        assert file.read_text() == "lr: held\n"
        assert [len(request.json()["events"]) for request in listener.calls] == [0, 1]
    code, out, _ = run_command("notify", capsys)
    assert code == Exit.REFUSED
    assert "command sh: sent" in out
    assert "webhook http://127.0.0.1:" in out
    assert "failed: no connection" in out
    assert "secret" not in out


def test_dagdir_settings_cannot_run_or_post(
    tmp_path: Path, dagdir: LiveDagdir, capsys: Captured
) -> None:
    file = tmp_path / "got"
    dagdir.hold()
    with web_listener() as listener:
        dagdir.write(
            "metlmon.toml",
            f'[notify]\ncommand = ["touch", "{file}"]\nwebhook = "{listener.url}/"\n',
        )
        for command in ("status --notify", "notify"):
            code, _, err = run_command(command, capsys, dagdir.path)
            assert code == Exit.USAGE
            assert "[notify] belongs to your own metlmon.toml (line 1)" in err
        assert listener.calls == []
    assert not file.exists()


# --- Home notifies of every ensemble in it ----------------------------------------------------


HELD = NotifyEvent(key="held 12", name="held", text="held (hold 12) · run7")
DIVERGED = NotifyEvent(key="diverged", name="diverged", text="diverged · run8")
LATER, EARLIER = datetime(2025, 11, 14, 8, 20), datetime(2025, 11, 14, 8, 19)


async def arrived(listener: FaultyTracker, number: int) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        while len(listener.calls) < number:
            await asyncio.sleep(0.01)
    return [request.json()["text"] for request in listener.calls]


async def test_home_notifies_and_marks_opened_ensembles_as_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    dagdir = FIXTURES / "trainer"

    reader = DagdirReader(dagdir)
    reader.open()
    session = Session(reader)
    home = FakeHome(summary("/data/sweep"), summary(dagdir, "done"))
    with web_listener() as listener:
        options = AppOptions(
            home=home,
            remember_seen=True,
            notify=NotifySettings(("held",), webhook=read_webhook(f"{listener.url}/"), interval=0),
        )
        async with opened(NullFeed(Path("/data")), (80, 24), options) as seen:  # type: ignore[arg-type]
            home.give(summary("/data/sweep", events=(HELD, DIVERGED), as_of=LATER))
            assert await arrived(listener, 1) == ["sweep: held\nheld (hold 12) · run7"]
            # An older summary has no later end.
            home.give(summary("/data/sweep", as_of=EARLIER))
            home.give(summary("/data/sweep", events=(HELD,), as_of=LATER))
            home.give(summary("/data/other", events=(HELD,), as_of=LATER))
            assert (await arrived(listener, 2))[1].startswith("other: held")
            seen.app.show_ensemble(FeedAndPool(session, None, "no pool in this test"))
            async with asyncio.timeout(PATIENCE):
                while seen.app.snapshot.progress.fraction < 1:
                    await seen.settle()
            await seen.press("q")
            await seen.settle()
            remembered = load_last_seen(dagdir)
            assert remembered.until == session.take().status.as_of
        session.stop()
        assert len(listener.calls) == 2
    assert not any("data" in str(path) for path in tmp_path.iterdir())
