"""The service whose relay is measured, as `milepost serve` loads it."""

from __future__ import annotations

from milepost import Milepost

service = Milepost("bench")
