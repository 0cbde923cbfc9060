"""Lists the wheel's files in the wheel, with their hashes (CycloneDX, PEP 770)."""

import json
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class SbomHook(BuildHookInterface):  # type: ignore[type-arg]
    """Writes the SBOM from the metadata, so that no version stands in two places."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        core = self.metadata.core
        package = f"pkg:pypi/{core.name}@{self.metadata.version}"
        sbom = {
            "bomFormat": "CycloneDX",
            "specVersion": "1.6",
            "version": 1,
            "metadata": {
                "component": {
                    "type": "library",
                    "bom-ref": package,
                    "name": core.name,
                    "version": self.metadata.version,
                    "description": core.description,
                    "licenses": [{"expression": core.license_expression}],
                    "purl": package,
                    "externalReferences": [
                        {"type": "vcs", "url": core.urls["Source"]},
                        {"type": "issue-tracker", "url": core.urls["Issues"]},
                    ],
                }
            },
            "components": list(self.files()),
            "compositions": [{"aggregate": "complete", "assemblies": [package]}],
        }
        file = Path(self.directory, f"{core.name}.cdx.json")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(sbom, indent=2) + "\n", encoding="utf-8")
        build_data["sbom_files"].append(str(file))

    def files(self) -> Iterator[dict[str, Any]]:
        """Return a component for each file that the wheel takes from the source."""
        for file in self.build_config.builder.recurse_included_files():
            digest = sha256(Path(file.path).read_bytes()).hexdigest()
            yield {
                "type": "file",
                "name": file.distribution_path,
                "hashes": [{"alg": "SHA-256", "content": digest}],
            }

    def finalize(
        self, version: str, build_data: dict[str, Any], artifact_path: str
    ) -> None:
        for file in build_data["sbom_files"]:
            Path(file).unlink(missing_ok=True)
