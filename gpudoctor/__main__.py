"""`python -m gpudoctor`."""

import sys

from gpudoctor.cli import main

if __name__ == "__main__":
    sys.exit(main())
