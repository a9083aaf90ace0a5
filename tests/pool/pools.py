"""A real HTCondor for tests: one that is there already, or the pool that ``pool`` makes.

>>> with pool_in_use({}) as pool:
...     pool.run(["condor_q"])
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from terminals import Terminal

SCRIPT = Path(__file__).with_name("pool")
PATIENCE = 300.0
"""Seconds until a test says that what it waits for does not come."""
SLOT_SECONDS = 1800.0
"""The same for a slot: it comes in seconds where nobody else uses the pool."""
COMMAND_SECONDS = 60.0

Ad = dict[str, Any]
Found = TypeVar("Found")


class NoPool(Exception):
    """No pool can be used; the message is one sentence."""


SECOND, THIRD = (
    {"METLMON_POOL": f"/var/lib/metlmon-pool-{n}", "METLMON_POOL_PORT": str(9617 + n)}
    for n in (2, 3)
)
"""The environment of the script for a pool beside the first one."""


def load_script(environment: Mapping[str, str]) -> ModuleType:
    """The script as a module: it has no suffix, being a command."""
    os.environ.update(environment)
    try:
        return _load_script()
    finally:
        for name in environment:
            del os.environ[name]


def _load_script() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("pool_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def until(
    look: Callable[[], Found], why: str | Callable[[], str], seconds: float = PATIENCE
) -> Found:
    """Wait until ``look`` returns something true; return it, or fail with ``why``.

    The pause is as long as the last look, from half a second to one: looks start programs, and the
    schedd starts one for each question, which would keep a processor busy.
    """
    begun = time.monotonic()
    deadline = begun + seconds
    while not (found := look()):
        now = time.monotonic()
        if now > deadline:
            result = why if isinstance(why, str) else why()
            raise AssertionError(f"not within {seconds:.0f} s: {result}")
        time.sleep(min(1.0, max(0.5, now - begun)))
        begun = time.monotonic()
    return found


@dataclass(frozen=True, slots=True)
class Pool:
    """HTCondor, and acting as a user of its access point. ``users``: those who can submit, by
    default the first; None: the user who runs the tests. ``base``: where directories for tests are
    made. ``sites``: GLIDEIN_ResourceName by the name of the execute daemon, as in a job's
    LastRemoteHost. ``script`` is None where the pool is not ours."""

    users: tuple[str | None, ...]
    base: Path
    sites: dict[str, str]
    script: ModuleType | None

    # --- being someone ---

    def command(
        self, argv: Sequence[str], directory: Path, user: str | None = None, **more: str
    ) -> list[str]:
        """``argv`` to run as a user of the access point, in a directory."""
        if self.script is None:
            return ["/usr/bin/env", "-C", str(directory), *argv]
        made = self.script.user_command(user or self.users[0], argv, directory, **more)
        return [str(word) for word in made]

    def run(
        self,
        argv: Sequence[str],
        directory: Path | None = None,
        user: str | None = None,
        expect: int | None = 0,
        seconds: float = COMMAND_SECONDS,
        **more: str,
    ) -> subprocess.CompletedProcess[str]:
        """Run it to its end; fails unless its exit status is ``expect`` (None: any)."""
        done = subprocess.run(
            self.command(argv, directory or self.base, user, **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
        )
        assert expect is None or done.returncode == expect, (
            f"{' '.join(argv)} ended with {done.returncode}, not {expect}:\n"
            f"{done.stdout}{done.stderr}"
        )
        return done

    def start(
        self, argv: Sequence[str], directory: Path, user: str | None = None
    ) -> subprocess.Popen[str]:
        """Start it beside the test, with pipes for its output."""
        return subprocess.Popen(
            self.command(argv, directory, user),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @contextmanager
    def terminal(
        self,
        argv: Sequence[str],
        directory: Path,
        size: tuple[int, int] = (80, 24),
        user: str | None = None,
    ) -> Iterator[Terminal]:
        """``argv`` as a user on a pseudo-terminal of this many columns and lines."""
        more = {"TERM": "xterm-256color"}
        command = self.command(argv, directory, user, **more)
        with Terminal(command, size, {**os.environ, **more}) as made:
            yield made

    def home_of(self, user: str | None = None) -> Path:
        """The directory below which a user's directories are made."""
        if self.script is None or user in (None, self.users[0]):
            return self.base
        return Path(self.script.HOMES / str(user) / self.base.name)

    def directory(self, name: str, user: str | None = None) -> Path:
        """Make a new directory that belongs to a user."""
        home = self.home_of(user)
        path = home / name
        path.mkdir(parents=True)
        self.give(home, user)
        self.give(path, user)
        return path

    def give(self, path: Path, user: str | None = None) -> None:
        """Change the owner of a file of this process to the user."""
        if self.script is not None:
            shutil.chown(path, user or self.users[0], user or self.users[0])

    def place(self, path: Path, data: str | bytes, mode: int = 0o644) -> Path:
        """Write a file of the user atomically."""
        new = path.with_name(f".{path.name}.new")
        new.write_bytes(data.encode() if isinstance(data, str) else data)
        new.chmod(mode)
        self.give(new)
        new.rename(path)
        return path

    # --- HTCondor's account ---

    def queue(self, *constraint: str) -> list[Ad]:
        """The ads of the queue (``condor_q``), of all users."""
        return self._ads("condor_q", "-allusers", *_constrained(constraint))

    def history(self, *constraint: str) -> list[Ad]:
        """The ads of jobs that left the queue (``condor_history``), the newest first."""
        return self._ads("condor_history", *_constrained(constraint))

    def executions(self, *constraint: str) -> list[Ad]:
        """One ad for each execution that has ended (``condor_history -epochs``)."""
        return self._ads("condor_history", "-epochs", *_constrained(constraint))

    def _ads(self, *command: str) -> list[Ad]:
        text = self.run([*command, "-json"]).stdout.strip()
        return json.loads(text) if text else []

    def running(self, count: int, *constraint: str) -> list[Ad]:
        """Wait for so many executing jobs; return their ads by node."""

        def look() -> list[Ad] | None:
            ads = self.queue("JobStatus == 2", "JobUniverse == 5", *constraint)
            ads = [ad for ad in ads if ad.get("JobCurrentStartExecutingDate") is not None]
            return ads if len(ads) == count else None

        def there() -> str:
            result = [
                f"{ad.get('DAGNodeName')}: {ad['JobStatus']}" for ad in self.queue(*constraint)
            ]
            return f"{count} jobs run; the queue has (node: JobStatus) {', '.join(result)}"

        found = until(look, there, SLOT_SECONDS)
        assert found is not None
        return sorted(found, key=lambda ad: str(ad.get("DAGNodeName")))

    # --- the pool itself ---

    @contextmanager
    def schedd_paused(self) -> Iterator[None]:
        """Stop the schedd (SIGSTOP) within the context. Keep it short: others use it, too."""
        schedds = [each for each in self.script.members() if _name(each) == "condor_schedd"]
        assert schedds, "no schedd runs in the pool"
        for process in schedds:
            os.kill(process, signal.SIGSTOP)
        try:
            yield
        finally:
            for process in schedds:
                os.kill(process, signal.SIGCONT)

    def remove_everything_below(self, base: Path, user: str | None = None) -> None:
        """Remove a user's jobs submitted below ``base``, DAGMan first, and wait for their end."""

        def ours() -> list[str]:
            ads = self.queue()
            ads.sort(key=lambda ad: ad["JobUniverse"] != SCHEDULER_UNIVERSE)
            return [str(ad["ClusterId"]) for ad in ads if is_below(ad["Iwd"], base)]

        clusters = ours()
        for word in ([], ["-forcex"]):
            if clusters:
                self.run(["condor_rm", *word, *clusters], base, user, expect=None)
            if clusters and not word:
                try:
                    until(lambda: not ours(), "jobs leave the queue", 20)
                except AssertionError:
                    clusters = ours()
                else:
                    return


SCHEDULER_UNIVERSE = 7


def _name(process: int) -> str:
    """The name of its program; empty when it has ended."""
    try:
        return Path(f"/proc/{process}/comm").read_text().strip()
    except OSError:
        return ""


def is_below(path: str, base: Path) -> bool:
    return Path(path) == base or base in Path(path).parents


def _constrained(constraint: Iterable[str]) -> list[str]:
    found = [f"({each})" for each in constraint]
    return ["-constraint", " && ".join(found)] if found else []


# --- finding or making it -----------------------------------------------------------------


@contextmanager
def pool_in_use(environment: Mapping[str, str]) -> Iterator[Pool]:
    """A pool that is ready, for this process and others at the same time.

    The last process that leaves a pool stops it, if one of them started it. Raises :class:`NoPool`.
    """
    script = load_script(environment)
    if not script.running() and script.existing() is not None:
        yield from _cleared(_theirs())
        return
    if os.geteuid() != 0:
        text = "the test pool runs, but only root can enter it" if script.running() else ""
        raise NoPool(f"{text or 'no HTCondor is here'}; as root, one would be made and used")
    script.BASE.mkdir(parents=True, exist_ok=True)
    started = script.BASE / "started-by-tests"
    with (script.BASE / "sessions").open("w") as sessions:
        fcntl.flock(sessions, fcntl.LOCK_SH)
        if not script.running():
            started.touch()
        # Installing can take minutes; the script reports its progress on standard error.
        up = subprocess.run(
            [sys.executable, str(SCRIPT), "up"],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        if up.returncode:
            raise NoPool(up.stderr.decode(errors="replace").strip() or f"{SCRIPT} up failed")
        sites = {name: values[0] for name, values in script.SITES.items()}
        users = tuple(script.USERS)
        pool = Pool(users, _fresh(script.HOMES / users[0]), sites, script)
        pool.give(pool.base)
        yield from _cleared(pool)
        fcntl.flock(sessions, fcntl.LOCK_UN)
        with suppress(BlockingIOError):
            fcntl.flock(sessions, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if started.exists():
                started.unlink()
                command = [sys.executable, str(SCRIPT), "stop"]
                subprocess.run(command, env={**os.environ, **environment}, check=True)


def _cleared(pool: Pool) -> Iterator[Pool]:
    try:
        yield pool
    finally:
        for user in pool.users:
            pool.remove_everything_below(pool.home_of(user), user)


def _theirs() -> Pool:
    if os.geteuid() == 0:
        raise NoPool("an HTCondor is here, but root may not submit to it: run the tests as a user")
    base = _fresh(Path.home() / ".cache" / "metlmon")
    pool = Pool((None,), base, {}, None)
    found = pool.run(["condor_status", "-af", "Machine", "GLIDEIN_ResourceName"]).stdout
    sites = dict(line.split() for line in found.splitlines() if "undefined" not in line)
    return Pool((None,), base, sites, None)


def _fresh(home: Path) -> Path:
    """A directory for this session; those of ended sessions are deleted."""
    home.mkdir(parents=True, exist_ok=True)
    for old in home.glob("tests-*"):
        if not Path("/proc", old.name.split("-")[1]).exists():
            shutil.rmtree(old, ignore_errors=True)
    # The pool's history has jobs of an earlier process with the same number.
    base = home / f"tests-{os.getpid()}-{os.urandom(2).hex()}"
    base.mkdir()
    return base
