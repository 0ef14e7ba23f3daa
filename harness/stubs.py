"""Check that the stubs of pyarrow in `stubs/` promise what the installed pyarrow has; exits with 1 where they differ."""

import sys

from mypy.stubtest import parse_options, test_stubs

OPTIONS = (
    "--mypy-config-file",
    "pyproject.toml",
    "--allowlist",
    "stubs/allowlist.txt",
    "--ignore-missing-stub",
    "--ignore-disjoint-bases",
    "--ignore-unused-allowlist",
)

if __name__ == "__main__":
    sys.exit(test_stubs(parse_options(["pyarrow", *OPTIONS])))
