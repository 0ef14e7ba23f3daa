"""Every error that calving raises on purpose. Its class tells the caller's next move."""

from calving.secrets import masked


class CalvingError(Exception):
    """The base class of all these errors, never raised itself. The text is one sentence for the user: what is wrong,
    where, and what to do. Secrets of the configuration are masked in it.
    """

    def __str__(self) -> str:
        return masked(super().__str__())


class FencedError(CalvingError):
    """Nothing was written: a newer claim exists. Drop local state and join again."""


class StaleError(FencedError):
    """Nothing was written: a stored position is not where the publication starts. Start over from the stored
    position.
    """


class UnavailableError(CalvingError):
    """Nothing was written. The same call may be tried again."""


class UnexpectedError(UnavailableError):
    """A service answered with an error of no known class. Nothing was written. Another try may not differ: try again,
    but not for ever (``errors.retry.timeout``).
    """


class AccessDeniedError(UnavailableError):
    """A store denies the sink's credentials an access that the sink needs. Nothing was written. Try again a few times,
    with new credentials if they are lent. A denial that returns every time needs an operator.
    """


class CredentialsExpiredError(AccessDeniedError):
    """A store does not accept the credentials: they have expired, or were withdrawn. Nothing was written. Try again
    with new credentials, and with fewer records if the credentials expired within a batch.
    """


class EngineLostError(UnavailableError):
    """The engine takes no more jobs: its cluster or its server is gone, or has forgotten it. Nothing was written. Open
    the engine again.
    """


class NoResourcesError(EngineLostError):
    """No task of a job has begun in time, and the job was cancelled. Nothing was written. A new engine may get
    resources; if no job has ever run, an operator has to act.
    """


class OutcomeUnknownError(CalvingError):
    """The write may or may not have happened. Drop local state and start over from the stored positions."""


class ConfigError(CalvingError):
    """The settings, a service or table to which they refer, or what is installed must be changed before the sink can
    run.
    """


class CatalogRefusedError(ConfigError):
    """The catalog does not let a table be created or changed as asked, and no later answer would differ."""


class NewerVersionError(ConfigError):
    """A later version has written something that this one would misread. Install the version that the text names."""


class NothingToAnswerError(ConfigError):
    """A table lacks nothing that its sink has committed, so no rollback waits for an answer."""


class NotInstalledError(ConfigError):
    """This machine lacks a program; the text says which one to install."""


class DataLossError(CalvingError):
    """Records, positions or files are missing that should exist. An operator has to decide; retrying does not help."""


class BadRecordError(CalvingError):
    """A record cannot be decoded, routed or converted, and the settings do not tolerate it. An operator has to change
    the settings; a retry fails at the same record.
    """


class AccountingError(CalvingError):
    """Some records were neither written, nor dead letters, nor filtered. Nothing is published, and the sink stops. This
    is a bug in calving, so a retry would fail, too.
    """


class ProtocolError(CalvingError):
    """A machine was given an input that its state forbids. A bug in calving; never caught."""


class JobFailedError(CalvingError):
    """The tasks of a batch failed. Try again; a failure that returns every time needs an operator."""


class JobTooLongError(JobFailedError):
    """A job took longer than it may, and was cancelled. Try again with fewer records, if it had many."""


class RestartNeededError(CalvingError):
    """This process cannot go on, but a new one can. The process ends with the code at which supervisors restart it."""


class GaveUpError(CalvingError):
    """The same failure came too often in a row. The sink stops: an operator has to act."""


class CommandFailedError(CalvingError):
    """A command did not do its work. Do what the text says, and run the command again."""


class CommitRefusedError(CalvingError):
    """The table has moved on since it was loaded, and nothing was committed. Load it again."""


class CommitUncertainError(CalvingError):
    """The catalog did not say whether the commit landed. Load the table again, and delete nothing."""


class AlreadyHeldError(CalvingError):
    """The table already holds records of these files. Never commit the files: drop them."""


class SupersededError(CalvingError):
    """A recovery has discarded the buffered files, and their records are read again. Never commit the files:
    step down.
    """


class WentBackError(CalvingError):
    """The catalog shows an older state of the table than before. Load it again later; an operator may have to act."""


class TableTroubleError(CalvingError):
    """The table cannot be committed now: missing, recreated, or unreachable. Its files stay buffered for the next
    cycle.
    """


class OtherSettingsError(TableTroubleError):
    """Workers with other settings wrote the files. A coordinator with their settings can commit them."""


class UnansweredRollbackError(TableTroubleError):
    """The table was rolled back, and takes nothing until somebody has answered with ``calving rollback``."""


class UnreachableError(UnavailableError):
    """This process cannot reach the store now. Leave the group if this lasts: other workers may reach it."""


class SilentError(UnreachableError):
    """The store took longer to answer than one request may take, which is more often one process's network than the
    store. Leave the group at once: others may reach it."""


class ResignedError(UnavailableError):
    """This process cannot lead. Leave the group for a while, so that another worker leads."""


FATAL = (AccountingError, ConfigError, DataLossError, BadRecordError, ProtocolError, RestartNeededError)
"""Errors that a retry in this process cannot fix."""


UNTRUSTED = "certificate verify failed"
"""OpenSSL's words, in the error of every client, for a server whose certificate the client does not trust."""


def first_line(error: BaseException) -> str:
    """The error in one line, for a reason, without secrets of the configuration."""
    text = masked(str(error).strip())
    return text.splitlines()[0] if text else type(error).__name__
