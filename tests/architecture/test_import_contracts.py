"""The import contracts hold, and each of them can break.

A contract whose modules were renamed matches nothing and is kept for ever. So one forbidden import
for each contract is planted in a copy of the tree, and all have to be reported broken.
"""

import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "tollhouse"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
    "contracts"
]
INNER_FILES = ("endpoints", "repository", "ports", "policy")

# contract -> the files to plant in, each with the line that is added to it
PLANTED = {
    "Packages form one downward order": {
        "kernel/planted.py": "import tollhouse.storage",
    },
    "No cycles, at any depth": {
        "kernel/planted.py": "import tollhouse.kernel.planted_too",
        "kernel/planted_too.py": "import tollhouse.kernel.planted",
    },
    "Every slice has the same inner order": {
        "identity/types.py": "import tollhouse.identity.service",
    },
    "Decisions know neither SQL nor HTTP": {
        "accounting/policy.py": "import sqlalchemy",
    },
    "The product never imports its tests": {
        "api/planted.py": "import tests.support",
    },
    "A sandbox loads none of the gateway's libraries": {
        "sandbox/planted.py": "import msgspec",
    },
    "The daemon of a sandbox loads none of its agent's libraries": {
        "sandbox/daemon/planted.py": "import pydantic",
    },
    "The daemon and the agent of a sandbox speak by lines alone": {
        "sandbox/agent/planted.py": "import tollhouse.sandbox.daemon",
    },
    **{
        f"Nobody reaches past the service of {name}": {
            f"{name}/{file}.py": "",  # so that it exists
            "api/planted.py": f"import tollhouse.{name}.{file}",
        }
        for name, file in [
            ("identity", "repository"),
            ("accounting", "policy"),
            ("inference", "ports"),
            ("batches", "repository"),
            ("vault", "policy"),
            ("audit", "repository"),
            ("interns", "repository"),
            ("provider_keys", "policy"),
        ]
    },
}


def check_imports(source: Path) -> subprocess.CompletedProcess[str]:
    """Run lint-imports with the project's contracts over the package under `source`."""
    command = [
        str(Path(sys.executable).with_name("lint-imports")),
        *("--no-logo", "--no-cache"),
        *("--config", str(ROOT / "pyproject.toml")),
    ]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    return subprocess.run(
        command, cwd=source, env=environment, capture_output=True, text=True, check=False
    )


def test_every_contract_is_kept() -> None:
    result = check_imports(ROOT / "src")
    assert result.returncode == 0, result.stdout + result.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in result.stdout


def test_every_contract_has_a_planted_violation() -> None:
    assert {contract["name"] for contract in CONTRACTS} == set(PLANTED)


def plant(tmp_path: Path, lines: Iterable[tuple[str, str]]) -> None:
    """Copy the package, and add lines to files of the copy."""
    ignored = shutil.ignore_patterns("__pycache__")
    package = shutil.copytree(PACKAGE, tmp_path / "tollhouse", ignore=ignored)
    for path, line in lines:
        with (package / path).open("a") as file:
            file.write(f"\n{line}\n")


def test_every_planted_violation_breaks_its_contract(tmp_path: Path) -> None:
    plant(tmp_path, (line for planted in PLANTED.values() for line in planted.items()))
    result = check_imports(tmp_path)
    assert result.returncode == 1, result.stderr
    assert [each for each in PLANTED if f"{each} BROKEN" not in result.stdout] == []


def test_a_sandbox_imports_nothing_of_the_gateway(tmp_path: Path) -> None:
    plant(tmp_path, [("sandbox/planted.py", "import tollhouse.kernel")])
    assert "Packages form one downward order BROKEN" in check_imports(tmp_path).stdout


def test_every_slice_is_protected() -> None:
    (inner_order,) = (c for c in CONTRACTS if c["name"] == "Every slice has the same inner order")
    protected = {
        module for c in CONTRACTS if c["type"] == "protected" for module in c["protected_modules"]
    }
    slices = [name.removeprefix("tollhouse.") for name in inner_order["containers"]]
    assert protected == {f"*.{name}.{file}" for name in slices for file in INNER_FILES}
