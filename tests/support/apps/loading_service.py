"""A service without sagas whose process writes down, as it ends, which modules it has loaded."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path

from milepost import Milepost

service = Milepost("loading")

atexit.register(lambda: Path(os.environ["LOADED"]).write_text(json.dumps(sorted(sys.modules))))
