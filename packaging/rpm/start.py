"""gpudoctor, with the packages that lie beside this file."""

import sys
from os.path import dirname

sys.path.insert(0, dirname(__file__))

from gpudoctor.cli import main

sys.exit(main())
