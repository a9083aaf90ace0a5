"""Pool information of the submit form, and its texts."""

from __future__ import annotations

from time import monotonic

from msgspec import Struct

from metlmon.pool.types import ScheddInfo, SiteInfo
from metlmon.text.formatting import plain
from metlmon.text.spans import DIM, NOTE, Line, line


class PoolInfo(Struct, frozen=True):
    """The local schedd and the collector's sites, or why they are unknown.

    ``error`` and ``sites_error`` are the reasons; ``schedd_asked`` and ``sites_asked`` the times of
    the monotonic clock at which a running query was started.
    """

    schedd: ScheddInfo | None = None
    error: str | None = None
    sites: tuple[SiteInfo, ...] = ()
    sites_error: str | None = None
    schedd_asked: float | None = None
    sites_asked: float | None = None

    @property
    def site_names(self) -> tuple[str, ...]:
        """Names of the sites known to the collector."""
        return tuple(site.name for site in self.sites)

    @property
    def gpu_models(self) -> tuple[str, ...]:
        """GPU models of the sites, sorted."""
        return tuple(sorted({model for site in self.sites for model in site.gpus}))

    @property
    def refusal(self) -> str | None:
        """The reason why nothing can be submitted; None if it is possible."""
        if self.schedd is None:
            return self.error or "the schedd has not answered yet"
        if not self.schedd.dagman and self.schedd.submit_command is None:
            return "neither condor_dagman nor condor_submit_dag is at hand on this machine"
        return None


def submission_method(schedd_info: ScheddInfo) -> str:
    """Return the submission method."""
    if schedd_info.dagman:
        return "htcondor2, with the condor_dagman at hand"
    return plain(schedd_info.submit_command or "no way", 200)


def schedd_line(pool_info: PoolInfo, long: bool = True) -> Line:
    """Render the schedd and the user, or that there is none."""
    info = pool_info.schedd
    if info is None:
        if pool_info.error is not None:
            return line(("no schedd", NOTE))
        return line((f"asking for the schedd{wait_text(pool_info.schedd_asked)}", DIM))
    version = plain(info.version, 40)
    text = line(plain(info.schedd, 60), (" as ", DIM), plain(info.user, 40))
    return text + line((f"   HTCondor {version}", DIM)) if long else text


def wait_text(asked: float | None) -> str:
    """Return the time since a query was started, from one second on."""
    waited = 0.0 if asked is None else monotonic() - asked
    return f"  {waited:.0f} s" if waited >= 1 else ""


def gpu_text(site: SiteInfo) -> str:
    """Return the GPU models of a site as text."""
    return plain(", ".join(site.gpus), 80) or "GPU unknown"
