"""The jobs of the incident: a shop's, which do badly only when the demo says so."""

from __future__ import annotations

import os

from django_shedlock import current_lock, scheduler_lock
from example.jobs import work

WELL, HANG, FAIL = "well", "hang", "fail"
"""How the demo lets a job run: a worker passes the word on as its tick."""


class CardDeclined(Exception):
    """What the failing job raises."""


def work_as_told() -> None:
    """Work for a moment, hang, or fail; started by hand, a job does its work."""
    how = os.environ.get("EXAMPLE_TICK", WELL)
    work(current_lock().name, seconds=3600 if how == HANG else 0.05)
    if how == FAIL:
        raise CardDeclined("the bank declined card 4711")


@scheduler_lock("shop.import_orders", lock_at_most_for="4m", schedule="*/5 * * * *")
def import_orders() -> None:
    """Fetch the orders of all market places."""
    work_as_told()


@scheduler_lock("shop.send_mails", lock_at_most_for="4m", schedule="*/5 * * * *")
def send_mails() -> None:
    """Send the mails that wait in the queue."""
    work_as_told()


@scheduler_lock("shop.update_stock", lock_at_most_for="9m", schedule="*/10 * * * *")
def update_stock() -> None:
    """Count what is left in the warehouses."""
    work_as_told()


@scheduler_lock(
    "shop.sync_prices",
    lock_at_most_for="4m",
    keep_alive=True,
    schedule="*/5 * * * *",
)
def sync_prices() -> None:
    """Send changed prices to the market places; the job that hangs."""
    work_as_told()


@scheduler_lock("shop.charge_cards", lock_at_most_for="10m")
def charge_cards() -> None:
    """Charge the cards of subscribers; the job that fails."""
    work_as_told()


@scheduler_lock("shop.make_thumbnails", lock_at_most_for="10m")
def make_thumbnails() -> None:
    """Shrink the pictures of new products; the job whose worker is killed."""
    work_as_told()


@scheduler_lock("shop.pay_suppliers", lock_at_most_for="3s", keep_alive=True)
def pay_suppliers() -> None:
    """Pay what is due; the job that loses its lock, with a lease that is too short."""
    work_as_told()


@scheduler_lock("shop.rebuild_search", lock_at_most_for="10m", keep_alive=True)
def rebuild_search() -> None:
    """Rebuild the search index; the job that takes too long."""
    work_as_told()


@scheduler_lock("shop.send_newsletter", lock_at_most_for="1h")
def send_newsletter() -> None:
    """Send the newsletter; the job that somebody paused."""
    work_as_told()


@scheduler_lock("shop.export_taxes", lock_at_most_for="1h")
def export_taxes() -> None:
    """Export the sales for the tax office; the job that somebody asked for."""
    work_as_told()


@scheduler_lock("shop.archive_orders", lock_at_most_for="1h")
def archive_orders() -> None:
    """Move old orders to the archive; the job that the history lacks."""
    work_as_told()


JOBS = {
    "shop.import_orders": import_orders,
    "shop.send_mails": send_mails,
    "shop.update_stock": update_stock,
    "shop.sync_prices": sync_prices,
    "shop.charge_cards": charge_cards,
    "shop.make_thumbnails": make_thumbnails,
    "shop.pay_suppliers": pay_suppliers,
    "shop.rebuild_search": rebuild_search,
    "shop.send_newsletter": send_newsletter,
    "shop.archive_orders": archive_orders,
}
"""What the demo starts, by the names of the locks."""
