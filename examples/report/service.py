"""The report service: `milepost serve` runs it, with MILEPOST_APP=milepost.examples.report.service:service."""

from __future__ import annotations

from milepost import Milepost

from .clients import Model, Pages
from .contracts import Config
from .saga import report

TABLE = """
CREATE TABLE IF NOT EXISTS daily_report (
    key text PRIMARY KEY, path text NOT NULL, sha256 text NOT NULL, url text NOT NULL, brief text NOT NULL,
    tries integer NOT NULL, at timestamptz NOT NULL DEFAULT now()
)
"""

service = Milepost(f"{Config().prefix}report", sagas=[report])
service.provide(Model, Model.connect)
service.provide(Pages, Pages.connect)
