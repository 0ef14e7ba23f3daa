"""Which form the workers of a sink use: the newest one that all of them know. Pure, for the coordinator."""

from __future__ import annotations

from calving.errors import NewerVersionError
from calving.model.events import NO_COMMIT, CommitComplete, DataComplete, Envelope, StartCommit
from calving.model.forms import OLDEST, StoredForm


def check_form(envelope: Envelope, own: StoredForm) -> None:
    """Refuse to go on where workers have used a form that this one does not know: it would misread what they wrote.

    A coordinator names the form in use. So does each event of a worker that is written in it: from another partition
    of the control log it may arrive first.

    :raises NewerVersionError: an event names such a form. An operator has to install the version that it names.
    """
    form = envelope.attached.form
    if form.number > own.number:
        raise NewerVersionError(
            f"the sink's workers use form {form.number} of the control log and the tables, which this version does not"
            f" know: install version {form.version} or later"
        )


class FormInUse:
    """The form that a coordinator names in StartCommit and CommitComplete.

    It is the lowest of those that the answers of a whole cycle name, and never lower than one that was in use before:
    what is written stays.
    """

    def __init__(self, own: StoredForm) -> None:
        """``own``: the newest form that this process knows."""
        self.form = OLDEST
        self._own = own
        self._cycle = NO_COMMIT
        self._lowest: StoredForm | None = None
        """The lowest form that an answer of the open cycle has named."""

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log.

        :raises NewerVersionError: see ``check_form``.
        """
        check_form(envelope, self._own)
        match envelope.event:
            case StartCommit(commit_id) if commit_id != self._cycle:
                self._cycle, self._lowest = commit_id, None
            case DataComplete(commit_id) if commit_id == self._cycle:
                form = OLDEST if envelope.member is None else envelope.member.form
                self._lowest = form if self._lowest is None else min(self._lowest, form)
            case CommitComplete():
                self.form = max(self.form, envelope.attached.form)

    def complete(self) -> None:
        """All partitions have answered in the last cycle, so all workers that write are known."""
        if self._lowest is not None:
            self.form = max(self.form, min(self._own, self._lowest))
