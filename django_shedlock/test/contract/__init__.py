"""The conformance suite of lock providers, for the tests of a new one."""

from django_shedlock.test.contract.accounts import AccountContract
from django_shedlock.test.contract.asynchronous import AsyncContract
from django_shedlock.test.contract.faults import FaultContract
from django_shedlock.test.contract.interleavings import InterleavingContract
from django_shedlock.test.contract.locking import LockingContract
from django_shedlock.test.contract.operators import OperatorContract
from django_shedlock.test.contract.protocol import ProtocolContract
from django_shedlock.test.contract.races import RaceContract
from django_shedlock.test.contract.ticks import TickContract


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
