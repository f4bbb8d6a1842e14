"""The results of a run as tables: models beside baselines, sizes and latencies before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from graphbox.cli.text import byte_size, duration, fitting_tables, metric, table

if TYPE_CHECKING:
    from rich.console import Console


_SHOWN_TRIALS = 10
"""Trials of a search that are printed."""


def print_results(report: Mapping[str, Any], console: Console) -> None:
    """Print what a report has of metrics, baselines, compression and measurements."""
    metrics, baselines = report.get("metrics") or {}, report.get("baselines") or {}
    left_out, notes = report.get("baselines_left_out") or {}, report.get("notes") or {}
    for task in {**baselines, **metrics}:
        _print_task(task, metrics.get(task, {}), baselines.get(task, {}), console)
        _print_notes(left_out.get(task, {}), notes.get(task, {}), console)
    _print_chunks(report.get("chunks") or [], console)
    _print_training(report.get("training") or {}, console)
    _print_export(report.get("export") or {}, console)
    _print_compress(report.get("compress") or {}, console)
    _print_bench(report.get("bench") or {}, console)


def _print_task(task: str, models: Mapping[str, Any], baselines: Mapping[str, Any], console: Console) -> None:
    rows_of = [(f"{name} (baseline)", values) for name, values in baselines.items()]
    rows_of += [(name, values) for name, values in models.items()]
    keys: list[str] = []
    for _, values in rows_of:
        keys += [key for key in values if key not in keys and _is_headline(key, values[key])]
    rows = [
        (name, *(metric(values[key]) if _is_number(values.get(key)) else "" for key in keys))
        for name, values in rows_of
    ]
    for part in fitting_tables(f"Task {task}", (task, *keys), rows, console.width):
        console.print(part)
        console.print()
    sample = next((values for values in baselines.values() if "queries_total" in values), None)
    if sample is not None:
        console.print(
            f"Baselines of {task} were measured on a sample of {sample['queries']:,} of "
            f"{sample['queries_total']:,} queries; tasks.{task}.baseline_queries=all measures all",
            markup=False,
            soft_wrap=True,
        )
        console.print()


def _print_notes(left_out: Mapping[str, str], notes: Mapping[str, str], console: Console) -> None:
    """Print which baselines did not run, and what figures of models mean."""
    for name, text in {**left_out, **notes}.items():
        console.print(f"{name}: {text}", markup=False, soft_wrap=True)
    if left_out or notes:
        console.print()


def _print_chunks(chunks: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print what became of the chunks of a stream."""
    columns: dict[str, tuple[str, Callable[[Any], str]]] = {
        "rows": ("rows", lambda value: f"{value:,.0f}"),
        "auc": ("AUC", metric),
        "average_precision": ("AP", metric),
        "gauc": ("GAUC", metric),
        "hr@10": ("HR@10", metric),
        "mrr": ("MRR", metric),
        "running_auc": ("AUC so far", metric),
        "running_average_precision": ("AP so far", metric),
        "published_bytes": ("published", byte_size),
        "dropped_rows": ("dropped rows", lambda value: f"{value:,.0f}"),
        "seconds": ("time", duration),
    }
    shown = {key: column for key, column in columns.items() if any(key in chunk for chunk in chunks)}
    rows = [
        (
            str(chunk["name"]),
            *(show(chunk[key]) if key in chunk else "" for key, (_, show) in shown.items()),
        )
        for chunk in chunks
    ]
    if rows:
        names = [name for name, _ in shown.values()]
        console.print(table("Chunks, each scored before it was learnt", ("chunk", *names), rows, names))
        console.print()


def _print_training(training: Mapping[str, Any], console: Console) -> None:
    """Print where the time of each training went; of a model that was trained twice, of both."""
    trainings: dict[str, Mapping[str, Any]] = {}
    for name, outcome in training.items():
        if outcome.get("first"):
            trainings[f"{name}:first"] = outcome["first"]
        trainings[name] = outcome
    stages = list(dict.fromkeys(stage for each in trainings.values() for stage in each["stage_seconds"]))
    rows = []
    for name, outcome in trainings.items():
        seconds = outcome["stage_seconds"]
        total = sum(seconds.values()) or 1.0
        shares = (f"{100 * seconds.get(stage, 0.0) / total:.0f} %" for stage in stages)
        rows.append((name, str(outcome["epochs"]), duration(total), *shares))
    if rows:
        columns = ("model", "epochs", "time", *stages)
        for part in fitting_tables("Where the time of training went", columns, rows, console.width):
            console.print(part)
            console.print()
    for name, outcome in training.items():
        _print_chosen(name, outcome.get("chosen"), console)
        _print_start(name, outcome.get("started_from"), console)
        devices = list(outcome.get("devices", ()))
        if any(device != "cpu" for device in devices):
            places = [f"{what}: {where}" for what, where in outcome.get("places", {}).items()]
            console.print(
                f"{name} was trained on {', then '.join(devices)}; {'; '.join(places)}", markup=False
            )


def _print_chosen(name: str, chosen: Mapping[str, Any] | None, console: Console) -> None:
    """Print the settings that the data chose, and what was tried."""
    if chosen is None or not (chosen["settings"] or chosen["trials"]):
        return
    settings = _in_words(chosen["settings"])
    console.print(f"{name} was trained with {settings}: {chosen['why']}", markup=False, soft_wrap=True)
    trials = chosen["trials"]
    if len(trials) > 1:
        best_first = sorted(
            trials, key=lambda each: (each["cost"] is None, each["state"] == "pruned", each["cost"] or 0.0)
        )
        shared = {
            key: value
            for key, value in trials[0]["settings"].items()
            if all(each["settings"].get(key) == value for each in trials)
        }
        rows = [
            (
                _figure_in_words(each),
                duration(each["seconds"]),
                _in_words({key: value for key, value in each["settings"].items() if key not in shared}),
            )
            for each in best_first[:_SHOWN_TRIALS]
        ]
        columns = (f"{chosen['metric']} on validation", "time", "settings")
        more = f", the best {_SHOWN_TRIALS}" if len(trials) > _SHOWN_TRIALS else ""
        console.print(table(f"{len(trials)} trials of {name}{more}", columns, rows, columns[:2]))
    console.print()


def _figure_in_words(trial: Mapping[str, Any]) -> str:
    if trial["value"] is None:
        return str(trial["state"])
    if trial["state"] != "pruned":
        return metric(trial["value"])
    figure, median = metric(trial["value"]), metric(trial["median"])
    return f"pruned after epoch {trial['epochs']}: {figure}, median {median}"


def _in_words(settings: Mapping[str, Any]) -> str:
    words = []
    for key, value in settings.items():
        if isinstance(value, Mapping):
            words.append(f"{key} {{{_in_words(value)}}}")
        else:
            words.append(f"{key} {'[]' if value in ([], ()) else value}")
    return ", ".join(words) or "the defaults"


def _print_start(name: str, start: Mapping[str, Any] | None, console: Console) -> None:
    """Print what a training took over from an earlier run."""
    if start is None:
        return
    console.print(
        f"{name} started from `{start['model']}` of run {start['run']}", markup=False, soft_wrap=True
    )
    for node_type, nodes in start["nodes"].items():
        console.print(
            f"  rows taken over: {nodes['taken_over']:,} of {nodes['nodes']:,} nodes of {node_type}; "
            f"{nodes['new']:,} new",
            markup=False,
            soft_wrap=True,
        )
    for table_name, rows in start["rows"].items():
        console.print(f"  rows taken over: {rows:,} of the table {table_name}", markup=False, soft_wrap=True)
    if start["weights"]:
        console.print(f"  weights taken over: {start['weights']:,}", markup=False, soft_wrap=True)
    console.print()


def _print_export(exports: Mapping[str, Any], console: Console) -> None:
    rows: list[tuple[str, ...]] = [
        (
            name,
            str(export.get("version", "")),
            byte_size(export.get("size_bytes")),
            _scientific(export.get("max_absolute_error")),
            _scientific(export.get("max_relative_error")),
        )
        for name, export in exports.items()
    ]
    columns = ["artifact", "version", "size", "max absolute error", "max relative error"]
    caption = "Export, compared with the trained model"
    if not any(error for row in rows for error in row[3:]):  # what is looked up is not computed again
        columns, rows, caption = columns[:3], [row[:3] for row in rows], "Export"
    if rows:
        console.print(table(caption, columns, rows, columns[1:]))
        console.print()


def _print_compress(compressed: Mapping[str, Any], console: Console) -> None:
    rows = []
    for name, report in compressed.items():
        size, value = report["size_bytes"], report["metric"]
        rows.append(
            (
                name,
                f"{byte_size(size['before'])} -> {byte_size(size['after'])}",
                f"{value['name']} {metric(value['before'])} -> {metric(value['after'])}",
                f"{-value['drop']:+.4f} (limit {-value['max_drop']:g})",
            )
        )
    if rows:
        console.print(table("Compression", ("artifact", "size", "validation", "change"), rows))
        console.print(
            "validation compares the two versions; a model may have learnt that part, so it says nothing "
            "about test",
            soft_wrap=True,
        )
        console.print()
    for name, report in compressed.items():
        if "search" in report:
            _print_search(name, report["search"], console)


def _print_search(name: str, search: Mapping[str, Any], console: Console) -> None:
    """Print the versions that a search wrote; `*` marks the chosen one."""
    metric_name = search["metric"]
    rows = [
        (
            f"{point['version']}{' *' if point['key'] == search['chosen'] else ''}",
            point["name"],
            byte_size(point["size_bytes"]),
            metric(point["metrics"][metric_name]),
            f"{point['latency']['p50_ms']:.3f}",
            f"{100 * point['latency']['p50_ms'] / point['latency']['original_p50_ms']:.0f} %",
            f"{point['latency']['p99_ms']:.3f}",
        )
        for point in search["points"]
    ]
    headings = ("version", "recipe", "size", metric_name, "p50 ms", "of original", "p99 ms")
    console.print(table(f"Versions of {name} that none beats in all three", headings, rows))
    drift = [
        (
            each["group"].replace("_", " "),
            f"{each['positives']:,}",
            metric(each["original"]),
            metric(each["chosen"]),
            f"{each['chosen'] - each['original']:+.4f}",
        )
        for each in search["drift"]
    ]
    if drift:
        columns = ("links in training", "positives", "original", "chosen", "change")
        console.print(table(f"{metric_name} by popularity of the targets", columns, drift, columns[1:]))
    tried, refused = len(search["trials"]), sum(each["state"] == "refused" for each in search["trials"])
    console.print(
        f"{tried} models were tried, {refused} of them refused; the report is {search['report']}",
        markup=False,
        soft_wrap=True,
    )
    console.print()


def _print_bench(benches: Mapping[str, Any], console: Console) -> None:
    rows = [
        (
            name,
            str(version["version"]),
            version["precision"],
            byte_size(version["size_bytes"]),
            measured_text(batch.get("operation", "model")),
            str(batch["batch"]),
            f"{batch['p50_ms']:.3f}",
            f"{batch['p99_ms']:.3f}",
            f"{batch['rows_per_s']:,.0f}",
        )
        for name, versions in benches.items()
        for version in versions
        for batch in version["batches"]
    ]
    if rows:
        columns = ("model", "version", "precision", "size", "measured", "batch", "p50 ms", "p99 ms", "rows/s")
        right = ("size", "batch", "p50 ms", "p99 ms", "rows/s")
        console.print(table("Latency and throughput of requests over loopback", columns, rows, right))
        console.print()


def measured_text(operation: str) -> str:
    """Return what a measurement was of."""
    parts = {"program": "ONNX part alone", "model": "call in Python"}
    return parts.get(operation, f"{operation} request")


def _is_headline(key: str, value: Any) -> bool:
    """Return whether a figure is a metric over all of the test part: no count, no part of it."""
    return isinstance(value, float) and "in_degree" not in key and "_relation_" not in key


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _scientific(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}"
