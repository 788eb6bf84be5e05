"""What a report is about, what its steps pass on, and where the outside world is."""

from __future__ import annotations

import hashlib
from datetime import date
from pathlib import Path

from milepost import Artifact
from pydantic import BaseModel, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

#: Most commits of a day that a report is made from; more are counted and left out.
MOST_COMMITS = 150


class Config(BaseSettings):
    """Where model and pages are, and where reports are kept: REPORT_MODEL_URL and so on.

    Attributes:
        prefix: Beginning of the service's name, where several share a broker.
        model_url: An Ollama server.
        model: Name of a model that it has.
        model_timeout: Longest wait for the model's answer, in seconds.
        pages_url: A server that speaks Notion's API.
        pages_token: Its token.
        pages_database: Id of the database in which pages are made; it has the properties Name and External ID.
        folder: Where reports are kept.
        caller: Who we say we are.
    """

    model_config = SettingsConfigDict(
        env_prefix="REPORT_", extra="ignore", frozen=True, protected_namespaces=()
    )

    prefix: str = ""
    model_url: str = "http://127.0.0.1:11434"
    model: str = "llama3.2"
    model_timeout: float = 300.0
    pages_url: str = "https://api.notion.com"
    pages_token: SecretStr = SecretStr("")
    pages_database: str = "reports"
    folder: Path = Path("build/reports")
    caller: str = "report"


class DailyReport(BaseModel):
    """One report: of a repository, on a day. Also the saga's input.

    Attributes:
        repo: Absolute path of the repository.
        day: The day, in UTC.
    """

    repo: str = Field(min_length=1, max_length=1000)
    day: date

    @property
    def name(self) -> str:
        """Return the repository's name for people."""
        return Path(self.repo).name

    @property
    def key(self) -> str:
        """Return what names the report: the repository and the day."""
        name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in self.name)[:60]
        return f"{name}-{hashlib.sha256(self.repo.encode()).hexdigest()[:8]}@{self.day.isoformat()}"


class Commit(BaseModel):
    """A commit, as far as a report speaks of it."""

    id: str
    author: str
    subject: str
    files: int
    added: int
    removed: int


class Collected(BaseModel):
    """What happened in the repository on that day.

    Attributes:
        head: The commit that HEAD was when it was read.
        commits: The day's commits, the oldest first.
        left_out: How many more there were.
    """

    head: str
    commits: list[Commit]
    left_out: int = 0


class Brief(BaseModel):
    """What the model is told; `sha256` names it, so that two reports can be told apart by what they rest on."""

    text: str
    sha256: str


class Draft(BaseModel):
    """An answer of the model; its text is an artifact.

    Attributes:
        tries: How many answers there are by now.
    """

    answer: Artifact
    model: str
    tries: int


class Saved(BaseModel):
    """The report as a file."""

    path: str
    sha256: str
    size: int


class Page(BaseModel):
    """The published page."""

    id: str
    url: str
