"""The DynamoDB of ``DYNAMODB_URL``, with a table for each test, as its page says."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from django_shedlock.providers.dynamodb import DynamoDBLockProvider
from tests.support.paths import ROOT

MISSING = "DynamoDB is missing: set DYNAMODB_URL"
PATIENT = {"timeout": "4m"}
LOGIN = {
    "region_name": "eu-central-1",
    "aws_access_key_id": "AKIDEXAMPLE",
    "aws_secret_access_key": "of/the+tests",
}
numbers = count()


def documented_table() -> dict[str, Any]:
    """Return what the command of the page asks for, as boto3 takes it."""
    page = (ROOT / "docs/stores/dynamodb.rst").read_text(encoding="utf-8")
    [command] = re.findall(r"\$ aws dynamodb create-table ((?:.*\\\n)*.*)", page)
    words = shlex.split(command.replace("\\\n", " "))
    asked: dict[str, Any] = {}
    for option, value in zip(words[::2], words[1::2], strict=True):
        name = option.removeprefix("--").title().replace("-", "")
        pairs = dict(each.split("=") for each in value.split(",") if "=" in each)
        asked[name] = [pairs] if pairs else value
    return asked


def documented_actions() -> set[str]:
    """Return the operations that the policy of the page allows."""
    page = (ROOT / "docs/stores/dynamodb.rst").read_text(encoding="utf-8")
    [policy] = re.findall(r"::\n\n((?: {4,}.*\n)+)", page)
    [statement] = json.loads(policy)["Statement"]
    return {action.removeprefix("dynamodb:") for action in statement["Action"]}


@pytest.fixture
def dynamodb() -> Iterator[dict[str, Any]]:
    """Return ``OPTIONS`` of a table without locks, which is deleted at the end."""
    url = os.environ.get("DYNAMODB_URL")
    if not url:
        pytest.skip(MISSING)
    table = f"locks-{os.getpid()}-{next(numbers)}"
    login = {} if "AWS_ACCESS_KEY_ID" in os.environ else LOGIN
    options = {"endpoint_url": url, "table": table, **login, **PATIENT}
    provider: Any = DynamoDBLockProvider("default", **options)
    client = provider.clients.get()
    client.create_table(**{**documented_table(), "TableName": table})
    client.get_waiter("table_exists").wait(TableName=table)
    yield options
    client.delete_table(TableName=table)
    provider.clients.close()


@pytest.fixture
def locks(dynamodb: dict[str, Any]) -> Iterator[DynamoDBLockProvider]:
    provider = DynamoDBLockProvider("default", **dynamodb)
    yield provider
    provider.clients.close()
