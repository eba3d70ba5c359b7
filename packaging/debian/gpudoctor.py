#!/usr/bin/python3 -I
"""gpudoctor, with the packages that lie beside it; -I keeps the caller's own away."""

import sys

sys.path.insert(0, "/usr/lib/gpudoctor")

from gpudoctor.cli import main

sys.exit(main())
