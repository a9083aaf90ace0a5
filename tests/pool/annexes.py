"""Simulated HPC annexes of the test pool: execute nodes that end at a set time.

An annex is a second ``condor_master`` in the pool's chroot, with the configuration of HTCondor's
pilot, and a request: the local-universe job that ``htcondor annex create`` submits, with the same
attributes. No site, token or password is involved. Source: ``htcondor_cli/annex_create.py`` of
HTCondor 23.9 (old generation) and 25.14 (new).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

READY_SECONDS = 30.0
END_SECONDS = 20.0
IDLE_SECONDS = 300
"""HTCondor's default: an annex ends after so long without a job."""

DAY = 86400
PARTS = ("log", "spool", "execute", "run", "lock")


class AnnexTrouble(Exception):
    """An annex cannot be started; the message is one sentence."""


def request_text(name: str, collector: str, owner: str, lifetime: int | None, nodes: int) -> str:
    """The submit file of an annex's request.

    ``lifetime``: in seconds, for the old generation; None for the new one.
    """
    keep = f"{lifetime} + 3600" if lifetime is not None else f"14 * {DAY}"
    attributes = {"name": name, "collector": collector, "owners": owner}
    if lifetime is not None:
        attributes |= {"queue_name": "gpu", "lifetime": str(lifetime), "nodes": str(nodes)}
        attributes |= {"allocation": "abc123", "PID": "4711", "JOB_ID": "815"}
    lines = [
        "universe = local",
        "requirements = hpc_annex_start_time =?= undefined",
        "executable = /usr/libexec/condor/annex/annex-local-universe.py",
        "cron_minute = */5",
        "on_exit_remove = PeriodicRemove =?= true",
        f"periodic_remove = hpc_annex_start_time + {keep} < time()",
        f'+arguments = strcat("$(CLUSTER).0 hpc_annex_request_id ", GlobalJobID, " {collector}")',
        f"batch_name = {name} [HPC Annex]",
        "+hpc_annex_request_id = GlobalJobID",
        *(f'+hpc_annex_{key} = "{value}"' for key, value in attributes.items()),
        "queue",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class SimulatedAnnexes:
    """The annexes of a pool: ``root`` is its chroot, ``collector`` an address.

    ``common``: configuration that all its execute nodes share. ``site``: the resource name of an
    execute daemon's site; ``inventory``: a script that prints that many GPUs of it. ``run_as``: the
    command line of a user.
    """

    root: Path
    collector: str
    common: Sequence[str]
    site: Callable[[str], str]
    inventory: Callable[[str, int], str]
    run_as: Callable[[str, Sequence[str]], list[str]]

    @property
    def base(self) -> Path:
        return self.root / "var/lib/condor-annexes"

    # --- requests ---

    def request(self, name: str, user: str, lifetime: int | None = None, nodes: int = 1) -> int:
        """Submit the request of an annex; returns its cluster."""
        text = request_text(name, self.collector, user, lifetime, nodes)
        ran = subprocess.run(
            self.run_as(user, ["condor_submit", "-terse", "-"]),
            input=text,
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            raise AnnexTrouble(f"the request was refused: {ran.stderr.strip()}")
        return int(ran.stdout.split(".")[0])

    # --- nodes ---

    def start(
        self, name: str, cluster: int, *, site: str, seconds: int, gpus: int, idle: int
    ) -> None:
        """Start the node of a request, which ends after ``seconds``; wait for its slot.

        ``idle``: seconds without a job after which it ends, too.
        """
        request_id, old = self._ask(
            ("condor_q", str(cluster), "-af", "GlobalJobId", "hpc_annex_lifetime")
        ).split()
        stop = int(time.time()) + seconds
        directory = self._new_directory(f"{name}.{cluster}")
        inventory = directory / "gpus.sh"
        inventory.write_text(self.inventory(site, gpus))
        inventory.chmod(0o755)
        attributes = "AnnexName IsAnnex hpc_annex_request_id"
        lines = [
            "DAEMON_LIST = MASTER, STARTD",
            f"MASTER_NAME = annex-{directory.name}",
            f"STARTD_NAME = annex-{directory.name}",
            "NUM_CPUS = 8",
            "MEMORY = 16384",
            "MACHINE_RESOURCE_INVENTORY_GPUs = $(LOCAL_DIR)/gpus.sh",
            f'GLIDEIN_ResourceName = "{self.site(site)}"',
            "IsAnnex = True",
            f'AnnexName = "{name}"',
            f'hpc_annex_request_id = "{request_id}"',
            "START = MY.AnnexName == TARGET.TargetAnnexName",
            f"MASTER.DAEMON_SHUTDOWN_FAST = time() > {stop}",
            # The node checks its expiry at each update, else every five minutes.
            "MASTER_UPDATE_INTERVAL = 5",
            f"STARTD_NOCLAIM_SHUTDOWN = {idle}",
        ]
        if old == "undefined":
            # The pilot of the old generation does not advertise its end.
            attributes += " DaemonStopTime"
            lines.append(f"DaemonStopTime = {stop}")
        lines += [
            f"STARTD_ATTRS = $(STARTD_ATTRS) GLIDEIN_ResourceName {attributes}",
            f"MASTER_ATTRS = $(MASTER_ATTRS) {attributes}",
        ]
        self._start_master(directory, lines)
        seen = ("-constraint", f'hpc_annex_request_id == "{request_id}"')
        self._wait(directory, lambda: self._ask(("condor_status", *seen, "-af", "Name")))
        # So does the job of the request, but it looks for a node only every five minutes.
        started = f"{int(time.time())}"
        self._ask(("condor_qedit", str(cluster), "hpc_annex_start_time", started))

    def start_host(self, name: str, *, site: str, megabytes: int) -> None:
        """Start a machine of the pool itself, with a host name of its own; wait for its slot.

        It takes jobs whose ``MetlSite`` is its site, and has no GPU. :meth:`end` ends it.
        """
        lines = [
            "DAEMON_LIST = MASTER, STARTD",
            f"NETWORK_HOSTNAME = {name}",
            "NUM_CPUS = 8",
            f"MEMORY = {megabytes}",
            f'GLIDEIN_ResourceName = "{site}"',
            "START = MY.GLIDEIN_ResourceName == TARGET.MetlSite",
            "STARTD_ATTRS = $(STARTD_ATTRS) GLIDEIN_ResourceName",
        ]
        directory = self._new_directory(f"{name}.host")
        self._start_master(directory, lines)
        machine = ("-constraint", f'Machine == "{name}"')
        self._wait(directory, lambda: self._ask(("condor_status", *machine, "-af", "Name")))

    def refusing_collector(self, name: str, port: int) -> None:
        """Start a collector that nobody may read; :meth:`end` ends it."""
        directory = self._new_directory(f"{name}.collector")
        address = f"127.0.0.1:{port}"
        lines = [
            "DAEMON_LIST = MASTER, COLLECTOR",
            f"COLLECTOR_HOST = {address}",
            "ALLOW_READ =",
            "DENY_READ = *",
        ]
        self._start_master(directory, lines)
        self._wait(directory, lambda: _accepts(port))

    # --- daemons ---

    def _new_directory(self, name: str) -> Path:
        directory = self.base / name
        for part in PARTS:
            (directory / part).mkdir(parents=True)
        return directory

    def _inside(self, directory: Path, file: str = "") -> str:
        """The path within the chroot."""
        return str(Path("/") / directory.relative_to(self.root) / file)

    def _start_master(self, directory: Path, lines: Sequence[str]) -> None:
        """Start a ``condor_master`` with the common configuration and these lines."""
        common = [
            f"LOCAL_DIR = {self._inside(directory)}",
            "RELEASE_DIR = /usr",
            *(f"{part.upper()} = $(LOCAL_DIR)/{part}" for part in PARTS),
            "BIN = /usr/bin",
            "SBIN = /usr/sbin",
            "LIB = /usr/lib/condor",
            "LIBEXEC = /usr/libexec/condor",
            "use security:recommended_v9_0",
            *self.common,
            # The pool's collector would refuse its ads: "invalid session family".
            "SEC_USE_FAMILY_SESSION = False",
            "USE_SHARED_PORT = False",
        ]
        (directory / "condor_config").write_text("\n".join([*common, *lines, ""]))
        self._ask(("chown", "-R", "condor:condor", self._inside(directory)))
        # A host name of its own, so that no log has this machine's.
        command = (
            f"hostname localhost; exec chroot {self.root} /usr/bin/env "
            f"CONDOR_CONFIG={self._inside(directory, 'condor_config')} /usr/sbin/condor_master "
            f"-pidfile {self._inside(directory, 'master.pid')}"
        )
        subprocess.run(["unshare", "--uts", "sh", "-c", command], check=True)

    def _wait(self, directory: Path, is_ready: Callable[[], object]) -> None:
        deadline = time.monotonic() + READY_SECONDS
        while not is_ready():
            if time.monotonic() > deadline or not self._is_alive(directory):
                raise AnnexTrouble(f"{directory.name} did not get ready; see {directory}/log")
            time.sleep(0.3)

    # --- the end ---

    def end(self, name: str | None = None) -> bool:
        """End the annexes of this name, or all, with their requests; return whether any existed."""
        directories = [
            directory
            for directory in (self.base.iterdir() if self.base.exists() else ())
            if name is None or directory.name.rpartition(".")[0] == name
        ]
        constraint = "hpc_annex_name isnt undefined"
        if name is not None:
            constraint = f'hpc_annex_name == "{name}"'
        selected = ("-constraint", constraint)
        requests = self._ask(("condor_q", "-allusers", *selected, "-af", "ClusterId"))
        if requests:
            self._ask(("condor_rm", *selected))
        for directory in directories:
            if self._is_alive(directory):
                os.kill(self._master(directory), signal.SIGQUIT)
        deadline = time.monotonic() + END_SECONDS
        for directory in directories:
            while self._is_alive(directory) and time.monotonic() < deadline:
                time.sleep(0.1)
            if self._is_alive(directory):
                os.kill(self._master(directory), signal.SIGKILL)
            shutil.rmtree(directory, ignore_errors=True)
        return bool(directories or requests)

    def _is_alive(self, directory: Path) -> bool:
        try:
            process = self._master(directory)
            return os.readlink(f"/proc/{process}/root") == str(self.root) and (
                Path(f"/proc/{process}/comm").read_text().strip() == "condor_master"
            )
        except (OSError, ValueError):
            return False

    def _master(self, directory: Path) -> int:
        return int((directory / "master.pid").read_text())

    def _ask(self, command: Sequence[str]) -> str:
        """Run a command inside as root; return its output."""
        ran = subprocess.run(["chroot", str(self.root), *command], capture_output=True, text=True)
        return ran.stdout.strip()


def _accepts(port: int) -> bool:
    """Whether anything listens on a port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
