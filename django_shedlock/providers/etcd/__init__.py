"""Locks in etcd, by its own leases."""

from django_shedlock.providers.etcd.provider import EtcdLockProvider

__all__ = ["EtcdLockProvider"]
