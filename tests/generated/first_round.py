"""The METL experiment's first round, generated: ``python -m tests.generated.first_round``.

Without an argument it rewrites ``fixtures/first-round``, byte for byte as it is.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from tests.generated.ensembles import live
from tests.generated.write import write

SEED: Final = 20251101
DIRECTORY: Final = Path(__file__).resolve().parents[2] / "fixtures" / "first-round"

if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else DIRECTORY
    write(live(SEED), target)
    print(f"wrote {target}", file=sys.stderr)
