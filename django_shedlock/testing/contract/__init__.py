"""The conformance suite of lock providers, for the tests of a new one."""

from django_shedlock.testing.contract.accounts import AccountContract
from django_shedlock.testing.contract.asynchronous import AsyncContract
from django_shedlock.testing.contract.bad_records import BadRecordContract
from django_shedlock.testing.contract.faults import FaultContract
from django_shedlock.testing.contract.given_back import GivenBackContract
from django_shedlock.testing.contract.interleavings import InterleavingContract
from django_shedlock.testing.contract.left_behind import (
    DeletionContract,
    LeftBehindContract,
)
from django_shedlock.testing.contract.locking import LockingContract
from django_shedlock.testing.contract.lost_replies import LostReplyContract
from django_shedlock.testing.contract.operators import OperatorContract
from django_shedlock.testing.contract.protocol import ProtocolContract
from django_shedlock.testing.contract.races import RaceContract
from django_shedlock.testing.contract.ticks import TickContract
from django_shedlock.testing.contract.writes import WriteContract
from django_shedlock.testing.contract.wrong_clocks import WrongClockContract


# pytest begins with the last base. The quick parts come last, so that a broken rule
# fails there first.
class LockProviderContract(
    ProtocolContract,
    InterleavingContract,
    RaceContract,
    WrongClockContract,
    FaultContract,
    LostReplyContract,
    BadRecordContract,
    WriteContract,
    AsyncContract,
    DeletionContract,
    LeftBehindContract,
    GivenBackContract,
    TickContract,
    AccountContract,
    OperatorContract,
    LockingContract,
):
    """
    What every provider must do, as tests for pytest. Subclass it.

    Set ``backend`` to the provider's class, and give it the fixtures ``options`` and
    ``unreachable_options``. Tests that the class attributes of the provider rule out,
    such as those of ticks without ``keeps_ticks``, are not there, nor are tests that
    need a hook which the subclass leaves out. It needs the extra ``contract``.
    """
