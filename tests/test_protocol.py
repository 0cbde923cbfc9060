"""The protocol: a reference model, and every provider held against it."""

from __future__ import annotations
