"""Forgets nodes everywhere in a workspace, and resumes that when it was killed.

What is to be forgotten is written to a journal first; each step can be repeated; the journal, which names the
ids, goes last. Nothing begins while a run of the graph is in progress.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from graphbox.artifact import Artifact
from graphbox.artifact.forgetting import write_without
from graphbox.config import load_config
from graphbox.errors import ConflictError, GraphboxError, NotFoundError, UsageError, did_you_mean
from graphbox.pipeline.forgetting.holdings import GivenIds, Holding, Holdings, follows, runs_of
from graphbox.pipeline.forgetting.report import ForgetReport
from graphbox.pipeline.graph_changes import compact_graph
from graphbox.pipeline.stages.follow import followed_model, published_in
from graphbox.words import counted
from graphbox.workspace import ModelRecord, RunRecord, Workspace, folder_size
from graphbox.workspace.forgettings import Forgetting

Tell = Callable[[str, int, int], None]
_PASSES = 3
_REWRITTEN = "rewritten"
_WEIGHTS = (
    "weights of models, and the rows of other nodes, were learnt with them: train again to have these without"
)
_OUTSIDE = "copies outside of this workspace: exports, backups, logs of servers and terminals"


def what_holds(workspace: Workspace, graph: str, ids: Mapping[str, Sequence[str | int]]) -> list[Holding]:
    """Return what holds nodes of a graph; changes nothing.

    Args:
        workspace: where to look.
        graph: name of the graph.
        ids: original ids by node type.

    Raises:
        UsageError: no ids are given.
    """
    return Holdings(workspace, graph, _texts(ids)).found()


def forget(
    workspace: Workspace,
    graph: str,
    ids: Mapping[str, Sequence[str | int]],
    progress: Tell | None = None,
) -> ForgetReport:
    """Forget nodes: in the graph, its runs, their models in all versions, in logs and in records.

    The graph loses the nodes with their edges and is compacted; versions of it that runs kept end, and with
    them the splits and checkpoints of the runs, which name nodes. Vectors, rows, neighbours and links of the
    nodes leave trained models and model versions, under the same numbers; running servers of the workspace
    open the rewritten versions.

    Args:
        workspace: where the graph is.
        graph: its name; runs and models of a graph that was removed are reached too.
        ids: original ids by node type.
        progress: called with what is done, how many steps are complete, and how many there are.

    Raises:
        UsageError: no ids are given.
        NotFoundError: nothing holds any of the ids; nothing was changed.
        ConflictError: a run of the graph is in progress, or a model would lose all nodes of a type; nothing
            was changed.
        DoesNotFitError: the disk is full; :func:`forget_again` resumes.
    """
    given = _texts(ids)
    with _undisturbed(workspace, graph):
        holdings = Holdings(workspace, graph, given)
        found = holdings.found()
        if not found:
            raise _nothing(holdings)
        _check_something_stays(holdings)
        begun = workspace.begin_forgetting(
            Forgetting(
                graph,
                {node_type: texts.to_pylist() for node_type, texts in given.items()},
                {
                    run: {node_type: nodes.tolist() for node_type, nodes in of_run.items()}
                    for run, of_run in holdings.indices.items()
                },
            )
        )
        return _carry_out(holdings, begun, found, progress)


def forget_again(workspace: Workspace, progress: Tell | None = None) -> list[ForgetReport]:
    """Resume what processes that were killed had begun to forget; [] where nothing was left.

    Raises:
        ConflictError: a run of the graph is in progress.
        FormatError: a journal is damaged.
    """
    reports = []
    for begun in workspace.unfinished_forgettings():
        with _undisturbed(workspace, begun.graph):
            ids = {node_type: pa.array(texts, pa.large_string()) for node_type, texts in begun.ids.items()}
            indices = {
                run: {node_type: np.array(nodes, np.int64) for node_type, nodes in of_run.items()}
                for run, of_run in begun.indices.items()
            }
            holdings = Holdings(workspace, begun.graph, ids, indices)
            _finish_steps(holdings)
            reports.append(_carry_out(holdings, begun, holdings.found(), progress))
    return reports


# Before anything changes


def _texts(ids: Mapping[str, Sequence[str | int]]) -> dict[str, pa.Array]:
    found = {
        node_type: pa.array(dict.fromkeys(str(each) for each in given), pa.large_string())
        for node_type, given in ids.items()
        if len(given)
    }
    if not found:
        raise UsageError("expected the ids of nodes to forget, received none")
    return found


@contextmanager
def _undisturbed(workspace: Workspace, graph: str) -> Iterator[None]:
    """Hold all runs of a graph while the block runs.

    Raises:
        ConflictError: one of them is in progress, or another process is forgetting nodes.
    """
    with ExitStack() as stack:
        stack.enter_context(workspace.forgetting_lock())
        for run in runs_of(workspace, graph):
            stack.enter_context(workspace.run_lock(run))
        yield


def _nothing(holdings: Holdings) -> NotFoundError:
    record = holdings.record()
    known = [] if record is None else sorted(record.node_types)
    wrong = next((node_type for node_type in holdings.ids if known and node_type not in known), None)
    if wrong is not None:
        return NotFoundError(
            f"the graph has no node type `{wrong}`",
            where=f"graph `{holdings.graph}`",
            hint=did_you_mean(wrong, known) or f"its node types: {', '.join(known)}",
        )
    if record is None and not holdings.runs:
        graphs = [each.name for each in holdings.workspace.graphs()]
        return NotFoundError(
            f"there is no graph `{holdings.graph}`, and no run of it",
            where=str(holdings.workspace.root),
            hint=did_you_mean(holdings.graph, graphs) or f"graphs: {', '.join(graphs) or 'none'}",
        )
    count = sum(map(len, holdings.ids.values()))
    first = next(iter(holdings.ids.values()))[0].as_py()
    return NotFoundError(
        f"nothing was forgotten: neither the graph nor its runs and models hold any of the "
        f"{counted(count, 'id')}, first `{first}`",
        where=f"graph `{holdings.graph}`",
        hint=f"`graphbox describe {holdings.graph}` shows what there is",
    )


def _check_something_stays(holdings: Holdings) -> None:
    for record, artifact, nodes in holdings.in_models():
        for node_type, held in nodes.items():
            if len(held) == len(artifact.ids(node_type)):
                raise ConflictError(
                    f"these are all nodes of type `{node_type}` that the model holds; nothing was changed",
                    where=f"model {record.name} version {record.version}",
                    hint=f"remove it: `graphbox models rm {record.name} --version {record.version}`",
                )


# Steps, each of which may be repeated


def _tell_nobody(what: str, done: int, total: int) -> None:
    """Take the place of a progress that nobody asked for."""


def _carry_out(
    holdings: Holdings, begun: Forgetting, found: Sequence[Holding], progress: Tell | None
) -> ForgetReport:
    started = time.monotonic()
    tell = progress or _tell_nobody
    workspace = holdings.workspace
    tell("graph", 0, 4)
    edges = _forget_in_graph(holdings)
    tell("runs", 1, 4)
    removed_bytes = _forget_in_states(holdings)
    tell("models", 2, 4)
    workspace.remove_search_models()
    held, left = _forget_in_versions(holdings, found)
    tell("logs", 3, 4)
    replaced = sum(holdings.redactor.redact_files(run.path) for run in holdings.runs)
    replaced += workspace.redact_records(holdings.redactor)
    unreached = _not_reached(holdings, left)
    workspace.end_forgetting(begun)
    return ForgetReport(
        graph=holdings.graph,
        given={node_type: len(ids) for node_type, ids in holdings.ids.items()},
        rewritten=tuple(each for each in held if each not in left),
        removed_bytes=removed_bytes,
        edges=edges,
        replaced=replaced,
        servers=tuple(server.url for server in workspace.running_servers() if server.follows),
        unreached=tuple(unreached),
        seconds=time.monotonic() - started,
    )


def _forget_in_states(holdings: Holdings) -> int:
    """Take the nodes out of streams, and remove the states of other trainings; return the bytes removed."""
    removed_bytes = 0
    for run in holdings.runs:
        if not (follows(run) and _forget_in_stream(holdings, run)):
            removed_bytes += _remove_folders(holdings.folders(run))
    return removed_bytes


def _forget_in_versions(holdings: Holdings, found: Sequence[Holding]) -> tuple[list[Holding], list[Holding]]:
    """Rewrite trained models and model versions until none holds the nodes.

    Returns:
        What held them, and what still does: a new version is found as often as somebody makes one.
    """
    held = list(found)
    left: list[Holding] = []
    for _ in range(_PASSES):
        _forget_in_runs(holdings)
        _forget_in_models(holdings)
        left = [each for each in holdings.found() if each.kind != "log"]
        if not left:
            break
        held += [each for each in left if each not in held]
    return held, left


def _not_reached(holdings: Holdings, left: Sequence[Holding]) -> list[str]:
    """Return what may still hold the nodes, each as a sentence."""
    known = {run.id for run in holdings.runs}
    begun = [run.id for run in runs_of(holdings.workspace, holdings.graph) if run.id not in known]
    return [
        *(
            f"{each.kind} {each.name} {each.part}".rstrip() + " holds them: forget them again"
            for each in left
        ),
        *(f"run {run} began meanwhile: forget them again when it has ended" for run in begun),
        *(
            f"the server at {server.url}, which does not follow: send SIGHUP to process {server.pid}"
            for server in holdings.workspace.running_servers()
            if not server.follows
        ),
        *holdings.elsewhere(),
        _WEIGHTS,
        _OUTSIDE,
    ]


def _forget_in_graph(holdings: Holdings) -> int:
    """Remove the nodes from the graph, compact it; return the number of edges that went with them."""
    from graphbox.graph.delta import remove
    from graphbox.graph.versions import release_versions

    record = holdings.record()
    if record is None:
        return 0
    edges = 0
    nodes = holdings.in_graph()
    if nodes:
        with holdings.workspace.writing_graph(holdings.graph, "removed from"):
            edges = sum(remove(record.path, nodes).edges.values())
    # Also where they were removed before: their bytes may still be there, and files of a killed process.
    compact_graph(holdings.graph, holdings.workspace)
    release_versions(record.path)
    return edges


def _remove_folders(folders: Iterable[Path]) -> int:
    removed_bytes = 0
    for folder in folders:
        removed_bytes += folder_size(folder)
        aside = folder.with_name(f".{folder.name}.removed")
        if aside.exists():
            shutil.rmtree(aside)
        folder.rename(aside)  # a reader finds all of it or nothing
        shutil.rmtree(aside)
    return removed_bytes


def _forget_in_stream(holdings: Holdings, run: RunRecord) -> bool:
    """Take nodes out of the last checkpoint of a stream; return whether the stream can go on."""
    from graphbox.graph import Graph
    from graphbox.train.forgetting import nodes_of_model, trained_models
    from graphbox.train.stream.forgetting import forget_in_stream

    record = holdings.record()
    if record is None:
        return False
    try:
        config = load_config(run.path / "config.yaml", check_files=False)
    except GraphboxError:  # without its run file the stream cannot go on anyway
        return False
    nodes = dict(holdings.indices.get(run.id, {}))
    for name in trained_models(run.path):
        for node_type, held in nodes_of_model(run.path, name, holdings.ids, nodes).items():
            nodes[node_type] = np.union1d(nodes.get(node_type, held), held)
    return forget_in_stream(
        run.path,
        followed_model(config, run.id),
        Graph.open(record.path),
        nodes,
        published_in(config, run.path),
        config.stream.serving,
        config.stream.base_every,
    )


def _forget_in_runs(holdings: Holdings) -> None:
    from graphbox.train.forgetting import forget_in_model

    for run, name, _ in list(holdings.in_runs()):
        forget_in_model(run.path, name, holdings.ids, holdings.indices.get(run.id, {}))


def _forget_in_models(holdings: Holdings) -> None:
    for record, artifact, nodes in list(holdings.in_models()):
        beside = _beside(record)
        if beside.exists():
            shutil.rmtree(beside)
        write_without(artifact, nodes, beside, _network_writer(artifact, holdings.ids))
        holdings.workspace.replace_version(record, beside)


def _beside(record: ModelRecord) -> Path:
    return record.path.with_name(f"{record.version}.{_REWRITTEN}")


def _network_writer(artifact: Artifact, ids: GivenIds) -> Callable[[Path], None] | None:
    from graphbox.train import load_network
    from graphbox.train.forgetting import without_rows
    from graphbox.train.network.network_files import save_network

    if artifact.manifest.network is None:
        return None
    network = load_network(artifact.path / artifact.manifest.network, may_import=False)
    return partial(save_network, without_rows(network, ids))


def _finish_steps(holdings: Holdings) -> None:
    """End the steps in which a process was killed."""
    from graphbox.train.forgetting import finish_forgetting

    for run in holdings.runs:
        finish_forgetting(run.path)
        for left in run.path.glob(".*.removed"):
            shutil.rmtree(left)
    for record in holdings.workspace.models():
        beside = _beside(record)
        if beside.exists() and record.path.exists():
            shutil.rmtree(beside)
        elif beside.exists():  # between the two steps of a file system that cannot exchange folders
            beside.rename(record.path)
        aside = record.path.with_name(f"{record.version}.replaced")
        if aside.exists():
            shutil.rmtree(aside)
