"""The sites of the generated ensemble's jobs, their machines and GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple


class Gpu(NamedTuple):
    """A model: its names in the settings and in the log; its capability and memory."""

    name: str
    device: str
    capability: float
    memory_mb: int


A5000: Final = Gpu("RTX A5000", "NVIDIA RTX A5000", 8.6, 24247)
A40: Final = Gpu("A40", "NVIDIA A40", 8.6, 45416)
A100_PCIE: Final = Gpu("A100-PCIE-40GB", "NVIDIA A100-PCIE-40GB", 8.0, 40326)
A100_40: Final = Gpu("A100-SXM4-40GB", "NVIDIA A100-SXM4-40GB", 8.0, 40326)
A100_80: Final = Gpu("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", 8.0, 81050)
V100: Final = Gpu("V100-SXM2-32GB", "Tesla V100-SXM2-32GB", 7.0, 32494)


@dataclass(frozen=True, slots=True)
class Place:
    """GPUs of one model at one site.

    ``site``: its name in metlmon; ``resource``: ``GLIDEIN_ResourceName`` of its 001 events, None
    where only the host identifies it; ``host``: with ``{}`` for the machine's number; ``hours``:
    median of an epoch; ``shares``: epochs that complete here of heterogeneous and of control runs.
    """

    site: str
    target: str
    resource: str | None
    host: str
    gpu: Gpu
    hours: float
    most_gpus: int
    shares: tuple[int, int]

    @property
    def sock(self) -> str:
        """The part of an address that distinguishes the daemons of places."""
        return f"{sum(self.host.encode()) % 9000 + 1000}_{len(self.gpu.device)}"


COEUS, NRP, SPARK = "PDX-Coeus-CE1", "SDSC-PRP-CE1", "CHTC-Spark-CE1"

PLACES: Final = (
    Place(COEUS, "ospool", COEUS, "gpu-{:02d}.coeus.example.edu", A5000, 9.5, 1, (120, 90)),
    # The same model as above, and slower: a table of medians by site and GPU must show it.
    Place("NRP", "ospool", NRP, "node-{:d}.nrp.example.net", A5000, 14.0, 1, (84, 60)),
    Place("NRP", "ospool", NRP, "a100-{:d}.nrp.example.net", A100_PCIE, 5.5, 1, (6, 0)),
    Place("delta", "delta", None, "gpub{:03d}.delta.ncsa.illinois.edu", A40, 8.5, 2, (70, 0)),
    Place("delta", "delta", None, "gpua{:03d}.delta.ncsa.illinois.edu", A100_40, 4.8, 2, (25, 0)),
    Place("campus", "campus", None, "gpu{:02d}.hpc.example.edu", A40, 8.9, 1, (38, 0)),
    Place("anvil", "anvil", None, "g{:03d}.anvil.rcac.purdue.edu", A100_40, 4.9, 1, (18, 0)),
    Place(SPARK, "ospool", SPARK, "gpulab{:04d}.chtc.wisc.edu", A100_80, 4.4, 1, (45, 0)),
    Place("aws", "aws", None, "ip-172-31-30-{:d}.ec2.internal", A100_80, 4.5, 4, (28, 0)),
    Place("expanse", "expanse", None, "exp-3-{:02d}.expanse.sdsc.edu", V100, 13.0, 1, (30, 0)),
    Place("bridges2", "bridges2", None, "v{:03d}.bridges2.psc.edu", V100, 13.4, 1, (16, 0)),
)
"""Completed epochs by model are those of the METL experiment's first round: A100-PCIE-40GB 6,
A100-SXM4-40GB 43, A100-SXM4-80GB 73, A40 108, RTX A5000 354, V100-SXM2-32GB 46."""
