"""A workspace: a folder of graphs, runs and models, and the database that knows them.

::

    graphbox.db            what exists, its state, history and size (or a database elsewhere, by URL)
    graphs/<name>/         a stored graph
    runs/<id>/             run.json, config.yaml, log, metrics, splits, embeddings, checkpoints
    models/<name>/<n>/     version n of a model
    .forgetting/           journals of nodes that are being forgotten
    .locks/                writer locks; servers/ in it names the running servers

Two processes may use one workspace. Whatever is removed is first gone from the database and then from
the disk; a process killed in between leaves the rest to whoever opens the workspace next.
"""

from __future__ import annotations

from graphbox.workspace.audit import Audits
from graphbox.workspace.forgettings import Forgettings
from graphbox.workspace.graphs import Graphs
from graphbox.workspace.runs import Runs
from graphbox.workspace.servers import Servers
from graphbox.workspace.versions import Versions


class Workspace(Graphs, Runs, Versions, Servers, Forgettings, Audits):
    """Opens the workspace at ``root``; safe to share between threads.

    Args:
        root: the folder.
        database_url: SQLAlchemy URL of a database to use instead of ``root/graphbox.db``.
        create: make the folder and the database when they are not there.
        busy_timeout_s: longest wait of a statement for a database that another process has locked.

    Raises:
        TimeLimitError: another process has locked the database for longer; every method raises this too.
        NotFoundError: there is none and ``create`` is False.
        UsageError: the folder is something else, or cannot be written.
        FormatError: the database is damaged, of another program or of a newer graphbox.
    """
