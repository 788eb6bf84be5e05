"""`python -m milepost.examples.notify`."""

import sys

from .demo import main

sys.exit(main())
