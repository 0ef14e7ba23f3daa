"""Which form the workers of a sink use: the newest one that all of them know, and none below one that was in use. Pure.

The control log names the form in use. A table names the form in which it was written, in a property of the sink, which
stays when snapshots expire, when others compact the table, and when it is rolled back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from calving.errors import NewerVersionError
from calving.model.backfills import is_backfill
from calving.model.events import NO_COMMIT, CommitComplete, DataComplete, Envelope
from calving.model.forms import NEWEST, OLDEST, UNMARKED, StoredForm
from calving.protocol.ledger import entry_of, shown

FORM = "calving.form"
"""The table property; the owner's name follows."""
_MOST = 1_000
"""Of how many cycles the answers are kept: some come late, and anybody who may write into the log can make up more."""


def check_form(envelope: Envelope, own: StoredForm = NEWEST) -> None:
    """Refuse to go on where workers have used a form that this one does not know: it would misread what they wrote.

    A coordinator names the form in use. So does each event of a worker that is written in it: from another partition
    of the control log it may arrive first.

    :raises NewerVersionError: an event names such a form. An operator has to install the version that it names.
    """
    refuse_newer(envelope.attached.form, own)


def refuse_newer(form: StoredForm, own: StoredForm = NEWEST) -> None:
    """The same for the form that an entry names.

    :raises NewerVersionError: an operator has to install the version that it names.
    """
    if form.number > own.number:
        raise NewerVersionError(
            f"the sink's workers use form {form.number} of the control log and the tables, {_unknown(form)}"
        )


def check_table_form(properties: Mapping[str, str], name: str, own: StoredForm = NEWEST) -> None:
    """Refuse a table of a form that this process does not know. ``name``: that of the owner's table property.

    :raises NewerVersionError: an operator has to install the version that the text names.
    """
    form = table_form(properties, name)
    if form.number > own.number:
        raise NewerVersionError(
            f"its property '{shown(name)}' says that it is written in form {form.number}, {_unknown(form)}"
        )


def check_owner_forms(properties: Mapping[str, str], owner: str, own: StoredForm = NEWEST) -> None:
    """The same for all branches to which the ``owner``, ``<control topic>.<group>``, writes the table: a new branch
    begins with what is in another one.
    """
    for name in properties:
        if name == f"{FORM}.{owner}" or name.startswith(f"{FORM}.{owner}@"):
            check_table_form(properties, name, own)


def check_table_forms(properties: Mapping[str, str], own: StoredForm = NEWEST) -> None:
    """The same for all sinks that write the table, in all branches."""
    for name in properties:
        if name.startswith(f"{FORM}."):
            check_table_form(properties, name, own)


def newer_sinks(properties: Mapping[str, str], known: Collection[str], own: StoredForm = NEWEST) -> str:
    """A sentence on a sink other than the ``known`` ones that writes the table in a form that this process does not
    know; empty if there is none. ``known``: ``<control topic>.<group>`` of each; backfills are, too.
    """
    for name in properties:
        owner = name.removeprefix(f"{FORM}.")
        if owner == name or owner in known or owner.rpartition("@")[0] in known or is_backfill(owner):
            continue
        form = table_form(properties, name)
        if form.number > own.number:
            return (
                f"sink {shown(owner)} writes it in form {form.number}, {_unknown(form)}; if it is another sink than"
                " this one, and both are to write there, name it in iceberg.control.other-sinks"
            )
    return ""


def table_form(properties: Mapping[str, str], name: str) -> StoredForm:
    """The form that the table property ``name`` names.

    :raises TableTroubleError: the property is not what calving writes.
    """
    return entry_of(properties, name, StoredForm.parse, str(OLDEST))


def mark(properties: Mapping[str, str], name: str, form: StoredForm) -> dict[str, str]:
    """The table property to set in a commit in this form: empty if the table names it or a later one, or if tables of
    this form are as they always were.
    """
    is_marked = form.number <= max(UNMARKED.number, table_form(properties, name).number)
    return {} if is_marked else {name: str(form)}


def _unknown(form: StoredForm) -> str:
    return f"which this version does not know: install version {form.version} or later"


class FormInUse:
    """The form that a coordinator names in StartCommit and CommitComplete.

    It is the lowest of those that the answers of a whole cycle name, and never lower than one that was in use before:
    what is written stays. Any event tells a form that was in use: that of a former coordinator may be heard after the
    files that were written in its form, from another partition of the control log.
    """

    def __init__(self, own: StoredForm = NEWEST) -> None:
        """``own``: the newest form that this process knows."""
        self.form = OLDEST
        self._own = own
        self._lowest: dict[UUID, StoredForm] = {}
        """By open cycle the lowest form that an answer has named. An answer may be heard before the start of its cycle,
        which stands in another partition of the control log.
        """

    def hear(self, envelope: Envelope) -> None:
        """Take in an entry of the control log.

        :raises NewerVersionError: see ``check_form``.
        """
        check_form(envelope, self._own)
        self.form = max(self.form, envelope.attached.form)
        match envelope.event:
            case DataComplete(commit_id) if commit_id != NO_COMMIT:
                form = OLDEST if envelope.member is None else envelope.member.form
                # The cycle that was answered last is kept longest.
                self._lowest[commit_id] = min(form, self._lowest.pop(commit_id, form))
                if len(self._lowest) > _MOST:
                    del self._lowest[next(iter(self._lowest))]
            case CommitComplete(commit_id):
                self._lowest.pop(commit_id, None)

    def complete(self, commit_id: UUID) -> None:
        """All partitions have answered in this cycle, the last one, so all workers that write are known."""
        if commit_id in self._lowest:
            self.form = max(self.form, min(self._own, self._lowest[commit_id]))
        self._lowest.clear()
