"""Settings: what contradicts itself is refused, what is secret is shown nowhere."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from milepost import Event
from milepost.console import main
from milepost.console.settings import OTHERS
from milepost.outbox.model import event_row
from milepost.schemas.errors import StartError, UsageError
from milepost.schemas.ids import SystemClock, SystemIds
from milepost.schemas.masking import MASK, is_url, mask_url, place_of
from milepost.schemas.settings import Settings, max_event_bytes
from milepost.streams.database import cannot_reach
from milepost.streams.kafka_client import client_arguments
from pydantic import ValidationError
from sqlalchemy.engine import make_url

SECRETS = ("hush-1", "hush-2", "hush-3")


def settings(url: str = "postgresql://u:hush-1@h:5/db", **more: Any) -> Settings:
    given: dict[str, Any] = {"database_url": url, **more}
    return Settings(**given)


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    for name in list(os.environ):
        if name.startswith("MILEPOST_"):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("url", "shown", "place"),
    [
        ("postgresql://u:hush-1@h:5/db", f"postgresql://u:{MASK}@h:5/db", "h:5"),
        ("postgresql://u@h/db?sslmode=require", "postgresql://u@h/db?sslmode=require", "h"),
        ("postgresql://u@h/db?password=hush-1&x=1", f"postgresql://u@h/db?password={MASK}&x=1", "h"),
        ("postgresql:///db?host=/run", "postgresql:///db?host=/run", "the local socket"),
        ("postgresql://u:hush-1@a:1,b:2/db", f"postgresql://u:{MASK}@a:1,b:2/db", "a:1,b:2"),
        ("postgresql://[::1]:5/db", "postgresql://[::1]:5/db", "[::1]:5"),
        # Not escaped: nobody can tell where the password ends.
        ("postgresql://u:hush-1@hush-2@h/db", f"postgresql://u:{MASK}@h/db", "h"),
        ("postgresql://u:hush-1/hush-2@h/db", f"postgresql://{MASK}", "an address that cannot be read"),
        ("hush-1", MASK, "the local socket"),
    ],
)
def test_urls_are_shown_without_their_passwords(url: str, shown: str, place: str) -> None:
    assert (mask_url(url), place_of(url)) == (shown, place)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("postgresql://u:p@h:5/db", True),
        ("postgresql:///db", True),
        ("postgresql://u:p#q@h/db", False),
        ("postgresql://u:p/q@h/db", False),
        ("postgresql://u:p@q@h/db", False),
        ("postgresql://h:port/db", False),
    ],
)
def test_what_can_be_read_as_a_url(url: str, good: bool) -> None:
    assert is_url(url) is good


def test_no_secret_is_in_what_is_printed_of_settings() -> None:
    whole = settings(
        kafka_security="SASL_SSL",
        kafka_user="u",
        kafka_password="hush-2",
        kafka_cert="/c.pem",
        kafka_key_password="hush-3",
    )
    for shown in (repr(whole), str(whole), f"{whole}", f"{[whole]}"):
        assert not [secret for secret in SECRETS if secret in shown]
    assert MASK in repr(whole) and "u:" in repr(whole)


@pytest.mark.parametrize("url", ["hush-1", "postgresql://u:hush-1@h:port/db", "mysql://u:hush-1@h/db"])
def test_a_wrong_url_is_refused_without_its_password(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(url)
    assert "hush-1" not in str(refused.value)
    monkeypatch.setenv("MILEPOST_DATABASE_URL", url)
    with pytest.raises(StartError) as named:
        Settings.from_env()
    assert named.value.code == "MP203" and "MILEPOST_DATABASE_URL" in named.value.text
    assert "hush-1" not in named.value.text


def test_what_may_be_set_is_told_as_it_has_to_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEPOST_DATABASE_URL", "postgresql://h/db")
    monkeypatch.setenv("MILEPOST_KAFKA_SECURITY", "tls")
    monkeypatch.setenv("MILEPOST_LEASE", "soon")
    with pytest.raises(StartError) as refused:
        Settings.from_env()
    assert "MILEPOST_KAFKA_SECURITY: input should be 'PLAINTEXT', 'SSL'" in refused.value.text
    assert "MILEPOST_LEASE: 'soon' is no duration" in refused.value.text and "PT30S" in refused.value.text


@pytest.mark.parametrize("url", ["postgresql://u:hush-1#x@h/db", "postgresql://u:hush-1/x@h/db", "hush-1"])
def test_the_command_line_refuses_it_without_its_password(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.run(["--database", url, "doctor"]) == 2
    printed = capsys.readouterr()
    assert "MP602" in printed.err and "hush-1" not in printed.err + printed.out


def test_a_server_that_is_away_is_named_without_the_password() -> None:
    error = cannot_reach("postgresql://u:hush-1@h:5/db", OSError("refused"))
    assert "h:5" in error.text and "hush-1" not in error.text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka_security": "SASL_SSL"}, "needs MILEPOST_KAFKA_USER and MILEPOST_KAFKA_PASSWORD"),
        ({"kafka_password": "hush-2", "kafka_user": "u"}, "MILEPOST_KAFKA_SECURITY=PLAINTEXT sends none"),
        ({"kafka_ca": "/ca.pem"}, "MILEPOST_KAFKA_CA is set"),
        ({"kafka_security": "SSL", "kafka_key": "/k.pem"}, "MILEPOST_KAFKA_KEY needs MILEPOST_KAFKA_CERT"),
        ({"kafka_security": "SASL"}, "kafka_security"),
    ],
)
def test_kafka_settings_that_contradict_each_other(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        settings(**given)
    assert words in str(refused.value) and "hush-2" not in str(refused.value)


def test_clients_are_made_with_what_the_settings_say() -> None:
    assert client_arguments("a:1,b:2") == {"bootstrap_servers": "a:1,b:2"}
    found = client_arguments(
        settings(kafka="k:9", kafka_security="SASL_SSL", kafka_user="u", kafka_password="hush-2")
    )
    assert (found["bootstrap_servers"], found["security_protocol"]) == ("k:9", "SASL_SSL")
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("SCRAM-SHA-512", "u")
    assert found["sasl_plain_password"] == "hush-2"
    assert found["ssl_context"].check_hostname


def test_sqlalchemy_gets_the_same_database() -> None:
    assert settings().sqlalchemy_url == "postgresql+asyncpg://u:hush-1@h:5/db"
    tls = make_url(settings("postgresql://u@h:5/db?sslmode=verify-full&sslrootcert=/ca.pem").sqlalchemy_url)
    assert (tls.host, tls.database) == ("h", "db")
    assert tls.query == {"dsn": "postgresql://?sslmode=verify-full&sslrootcert=/ca.pem"}
    several = make_url(settings("postgresql://u:hush-1@a:1,b:2/db").sqlalchemy_url)
    assert (several.username, several.database, several.query) == (
        "u",
        "db",
        {"dsn": "postgresql://a:1,b:2?"},
    )


def test_the_largest_event_is_read_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Said(Event, type="test.said", version=1, topic="t"):
        text: str

    def row() -> object:
        return event_row(
            Said(text="x" * 200), ids=SystemIds(), clock=SystemClock(), max_bytes=max_event_bytes()
        )

    assert max_event_bytes() == 1_000_000 and row()
    monkeypatch.setenv("MILEPOST_MAX_EVENT_BYTES", "100")
    with pytest.raises(UsageError, match="MP312"):
        row()
    monkeypatch.setenv("MILEPOST_MAX_EVENT_BYTES", "plenty")
    with pytest.raises(StartError, match="MP203"):
        row()


def shown(capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    assert main.run(["--json", "settings"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return {next(iter(line)): line for line in lines}


def test_the_command_shows_value_and_source_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "DATABASE_URL": "postgresql://u:hush-1@h:5/db",
        "LEASE": "40s",
        "ENCRYPTION_KEYS": "a:hush-2",
        "KEEP_INBOKS": "1d",
    }.items():
        monkeypatch.setenv(f"MILEPOST_{name}", value)
    found = shown(capsys)
    assert set(found) == {*Settings.model_fields, *(name.lower() for name in OTHERS), "unread"}
    assert found["lease"] == {"lease": "PT40S", "from": "env", "variable": "MILEPOST_LEASE"}
    assert (found["grace"]["grace"], found["grace"]["from"]) == ("PT25S", "default")
    assert found["database_url"]["database_url"] == f"postgresql://u:{MASK}@h:5/db"
    assert found["encryption_keys"]["encryption_keys"] == MASK
    assert found["unread"] == {"unread": "MILEPOST_KEEP_INBOKS"}
    assert main.run(["settings"]) == 0
    printed = capsys.readouterr()
    assert "hush" not in printed.out + printed.err
    assert "Did you mean MILEPOST_KEEP_INBOX?" in printed.err


def test_it_works_without_a_database_and_with_the_applications_own_settings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    found = shown(capsys)
    assert found["database_url"] == {
        "database_url": None,
        "from": "default",
        "variable": "MILEPOST_DATABASE_URL",
    }
    (tmp_path / "own_settings_app.py").write_text(
        "from datetime import timedelta\n"
        "from milepost import Milepost, Settings\n"
        "service = Milepost('own', settings=Settings(database_url='postgresql://u:hush-1@h/db',"
        " lease=timedelta(seconds=7)))\n"
    )
    (tmp_path / "pyproject.toml").write_text('[tool.milepost]\napp = "own_settings_app:service"\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    found = shown(capsys)
    assert (found["lease"]["lease"], found["lease"]["from"]) == ("PT7S", "code")
    assert (found["app"]["app"], found["app"]["from"]) == ("own_settings_app:service", "file")
    assert found["database_url"]["from"] == "code"
    assert settings(lease=timedelta(seconds=7)).lease == timedelta(seconds=7)
