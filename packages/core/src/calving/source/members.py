"""The members of a consumer group, asked for by a process of its own.

Only an admin client can ask for them. librdkafka 2.16 ends the process of an admin client that asks while the group's
coordinator moves or starts. So the sink's process does not ask itself: if the process that asks ends without an answer,
the sink starts another one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from calving.errors import ConfigError, UnavailableError
from calving.host import python_environment
from calving.source.client import TIMEOUT, admin_client, patiently, reaching

_ASKING = "from calving.source.members import answer; answer()"
_START_SECONDS = 30.0
"""The time that a busy machine may need to start the process."""


@patiently
def members(kafka: Mapping[str, str], group: str) -> dict[str, str]:
    """The client ids of the present members of a consumer group, by the members' ids.

    :raises ConfigError: settings or privileges are wrong. :raises UnavailableError: the broker cannot be reached.
    """
    what = f"asking for the members of group '{group}'"
    try:
        # Not as arguments: every user could read the secrets.
        said = _answered(json.dumps([dict(kafka), group, what]))
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{what}: no answer") from error
    report: dict[str, Any] = json.loads(said)
    if "wrong" in report:
        raise ConfigError(report["wrong"])
    if "unavailable" in report:
        raise UnavailableError(report["unavailable"])
    return dict(report["members"])


def _answered(question: str) -> str:
    """What ``answer`` writes in a process of its own. :raises subprocess.SubprocessError: nothing."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", _ASKING],
        input=question,
        env=python_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT + _START_SECONDS,
        check=True,
    )
    return done.stdout


def answer() -> None:
    """Read a question from the standard input, and write the answer to the standard output, both as JSON."""
    kafka, group, what = json.load(sys.stdin)
    report: dict[str, object]
    try:
        with reaching(what):
            admin = admin_client(kafka)  # the client must live until the answer has come
            described = admin.describe_consumer_groups([group], request_timeout=TIMEOUT)[group].result()
        report = {"members": {member.member_id: member.client_id for member in described.members}}
    except ConfigError as error:
        report = {"wrong": str(error)}
    except UnavailableError as error:
        report = {"unavailable": str(error)}
    json.dump(report, sys.stdout)
