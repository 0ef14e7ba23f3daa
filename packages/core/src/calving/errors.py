"""Every error calving raises on purpose, named for what the caller does next."""


class CalvingError(Exception):
    """Base of all of them. The text is one sentence for the user: what is wrong, where, and what to do."""


class Fenced(CalvingError):
    """Nothing was written, because a newer claim exists. Drop local state and join again."""


class Stale(Fenced):
    """Nothing was written, because a stored position is not where the publication starts. Start over from it."""


class Unavailable(CalvingError):
    """Nothing was written. The same call may be tried again."""


class OutcomeUnknown(CalvingError):
    """The write may or may not have happened. Drop local state and start over from what is on record."""


class ConfigError(CalvingError):
    """The settings, or what they point at, must be changed before the sink can run."""


class NotInstalledError(ConfigError):
    """This machine lacks a program; the text says which one to install."""


class DataLossError(CalvingError):
    """Something that was expected is gone. An operator has to decide; retrying does not help."""


class BadRecordError(CalvingError):
    """A record cannot be decoded, routed or converted, and the settings do not tolerate it."""


class AccountingError(CalvingError):
    """Records were read that are neither written, nor dead letters, nor filtered. Nothing is published, and the sink
    stops: a bug in calving, which trying again would only repeat."""


class ProtocolError(CalvingError):
    """A machine was given an input that its state forbids. A bug in calving; never caught."""


class JobFailedError(CalvingError):
    """The tasks of a batch failed. It may pass; what comes back again and again does not."""


class CommitRefused(CalvingError):
    """The table has moved on since it was loaded, and nothing was committed. Load it again."""


class CommitUncertain(CalvingError):
    """The catalog did not answer, or not clearly. Load the table again, and delete nothing."""


class AlreadyHeldError(CalvingError):
    """The files hold records that are in the table. They must never be committed: drop them."""


class SupersededError(CalvingError):
    """A recovery has discarded what was heard, and is being read again. It must never be committed: step down."""


class WentBackError(CalvingError):
    """The catalog shows the table as it was before it was last seen. Look again later; an operator may have to act."""


class TableTroubleError(CalvingError):
    """The table cannot take its files now: missing, recreated, out of reach. They stay buffered: try the next cycle."""


class Apart(Unavailable):
    """This process cannot reach the store now. Leave the group if that lasts: others may reach it."""


class Resigned(Unavailable):
    """This process is of no use as a leader. Leave the group for a while, so that another one leads."""


FATAL = (AccountingError, ConfigError, DataLossError, BadRecordError, ProtocolError)
"""What trying again does not help."""


def first_line(error: BaseException) -> str:
    """The error in one line, for a reason."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
