"""Options as hints propose them: to paste into a decorator, or into a setting."""

import json
from collections.abc import Mapping


def propose_options(options: Mapping[str, object], *, in_setting: bool) -> str:
    """Return ``"name": value`` for the dict of a setting, or else ``name=value``."""
    proposals = []
    for name, value in options.items():
        written = str(value) if isinstance(value, bool) else json.dumps(value)
        proposals.append(f'"{name}": {written}' if in_setting else f"{name}={written}")
    return ", ".join(proposals)
