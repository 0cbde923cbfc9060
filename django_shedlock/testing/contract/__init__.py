"""The conformance suite of lock providers, for the tests of a new one."""

from django_shedlock.testing.contract.accounts import AccountContract
from django_shedlock.testing.contract.asynchronous import AsyncContract
from django_shedlock.testing.contract.faults import FaultContract
from django_shedlock.testing.contract.interleavings import InterleavingContract
from django_shedlock.testing.contract.locking import LockingContract
from django_shedlock.testing.contract.operators import OperatorContract
from django_shedlock.testing.contract.protocol import ProtocolContract
from django_shedlock.testing.contract.races import RaceContract
from django_shedlock.testing.contract.ticks import TickContract


class LockProviderContract(
    LockingContract,
    OperatorContract,
    AccountContract,
    InterleavingContract,
    TickContract,
    AsyncContract,
    ProtocolContract,
    FaultContract,
    RaceContract,
):
    """
    What every provider must do, as tests for pytest. Subclass it.

    Set ``backend`` to the provider's class, and give it the fixtures ``options`` and
    ``unreachable_options``. Tests that the class attributes of the provider rule out,
    such as those of ticks without ``keeps_ticks``, are not there. It needs the extra
    ``contract``.
    """
