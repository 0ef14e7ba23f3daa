"""moto's server, whose Glue refuses an update that names another version of a table than the present one, as AWS's
Glue does.

moto ignores the version. So what races here is tried against our reading of Glue's documentation, not against Glue.
"""

from __future__ import annotations

import sys
import threading

from moto.core.exceptions import JsonRESTError
from moto.core.responses import ActionResult
from moto.glue.responses import GlueResponse
from moto.server import main

_original = GlueResponse.update_table
_one_at_a_time = threading.Lock()


def _update_table(self: GlueResponse) -> ActionResult:
    name, version = self.parameters["TableInput"]["Name"], self.parameters["VersionId"]
    with _one_at_a_time:
        present = self.glue_backend.get_table(self.parameters["DatabaseName"], name).as_dict()["VersionId"]
        if present != version:
            raise JsonRESTError("ConcurrentModificationException", f"table {name} has version {present}, not {version}")
        return _original(self)


if __name__ == "__main__":
    GlueResponse.update_table = _update_table  # type: ignore[method-assign]
    main(sys.argv[1:])
