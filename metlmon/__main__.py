"""``python -m metlmon``."""

import sys

from metlmon.cli.main import main

sys.exit(main())
