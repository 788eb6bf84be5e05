"""`python -m milepost.examples.campaign`."""

import sys

from .demo import main

sys.exit(main())
