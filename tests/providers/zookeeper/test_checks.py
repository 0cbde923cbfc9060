"""What ``manage.py check`` says of ZooKeeper."""

from __future__ import annotations

from typing import Any

from django_shedlock.checks import check_providers, check_stores
from tests.providers.test_servers import entry_of
from tests.support.zookeeper_servers import PATIENT, ReachableZooKeeper, paths


def use(settings: Any, **options: Any) -> None:
    settings.SHEDLOCK_PROVIDERS = {"default": entry_of("zookeeper", options)}


def test_right_options(settings: Any) -> None:
    """Nothing is said of them, whether or not a member answers."""
    login = {"auth_data": [("digest", "shop:secret")], "use_ssl": True}
    use(settings, hosts="one:2181,[::1]:1/shop", clocks_apart="1m", **login)
    assert check_providers() == []


def test_member_that_answers(
    settings: Any, running_zookeeper: ReachableZooKeeper
) -> None:
    """Nothing is said of it."""
    where = {"hosts": running_zookeeper.address, "path": next(paths)}
    use(settings, **where, **PATIENT)
    assert check_stores() == []


def test_two_providers_in_one_place(settings: Any) -> None:
    """The order of the members changes nothing, but the path does."""
    options = {"a": {"hosts": "one,two"}, "default": {"hosts": "two,one"}}
    entries = {alias: entry_of("zookeeper", each) for alias, each in options.items()}
    settings.SHEDLOCK_PROVIDERS = entries
    [message] = check_providers()
    assert message.id == "shedlock.E005"
    assert "one ZooKeeper, below '/django-shedlock'" in message.msg
    options["a"]["path"] = "theirs"
    settings.SHEDLOCK_PROVIDERS = {**entries}
    assert check_providers() == []
