"""Settings of artifacts that their model does not have: forms, towers, limits of neighbours, compression."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from graphbox.config.earlier_models import Mistake
from graphbox.config.kinds import kinds_that, section_of


def mistakes_of_export(name: str, export: Mapping[str, Any], model: Any) -> Iterator[Mistake]:
    """Yield the settings of an artifact that do not fit its model; wrong types are passed over.

    Args:
        name: of the artifact.
        export: its section, as plain values.
        model: section of its model, likewise; None: there is none of the name.
    """
    key, form = ("export", name), export.get("form")
    if export.get("max_neighbors") is not None and form != "encoder":
        message = "expected `form: encoder` beside `max_neighbors`, received none"
        yield (*key, "max_neighbors"), message, "add it, or leave `max_neighbors` out"
    if export.get("tower") == "candidate" and export.get("promote") == "if_better":
        yield (
            (*key, "promote"),
            "expected `always` or `never` beside `tower: candidate`, received `if_better`",
            "that tower is measured on no task: take `always`, or `graphbox models promote` later",
        )
    section = section_of(model.get("kind")) if isinstance(model, Mapping) else None
    if section is None:
        return
    kind = f"one of kind {model['kind']}"
    served = form or next(iter(section.EXPORT_FORMS), None)
    with_form = f" with `form: {form}`" if form else ""
    if export.get("max_neighbors") is not None and section.READS_NO_EDGES:
        message = f"expected a model that reads neighbours, received {kind}"
        yield (*key, "max_neighbors"), message, "leave `max_neighbors` out"
    if export.get("unknown_ids", "refuse") != "refuse" and served != "vectors":
        yield (
            (*key, "unknown_ids"),
            f"expected a model served as stored vectors beside `unknown_ids`, received {kind}{with_form}",
            "leave `unknown_ids` out",
        )
    if export.get("tower", "query") != "query" and not (section.ENCODES_CANDIDATES and served == "encoder"):
        able = " or ".join(kinds_that(lambda other: other.ENCODES_CANDIDATES))
        wanted = f"an encoder of a model of kind {able} beside `tower: {export['tower']}`"
        yield (*key, "tower"), f"expected {wanted}, received {kind}{with_form}", "leave `tower` out"
    if form is not None and form not in section.EXPORT_FORMS:
        forms = " or ".join(f"`{each}`" for each in section.EXPORT_FORMS) or "no `form`"
        message = f"expected {forms} for a model of kind {model['kind']}, received `{form}`"
        yield (*key, "form"), message, "leave `form` out"


def mistakes_of_compression(name: str, export: Any, models: Mapping[str, Any]) -> Iterator[Mistake]:
    """Yield the reasons why an artifact cannot be compressed in a run; wrong types are passed over.

    Args:
        name: of the artifact.
        export: its section `export`, as plain values.
        models: the section `models`, likewise.
    """
    model_name = str(export.get("model")) if isinstance(export, Mapping) else ""
    model = models.get(model_name)
    if not isinstance(model, Mapping):
        return
    section = section_of(model.get("kind"))
    # Of a kind that requires a task, the schema reports that it is missing.
    is_reported = section is not None and section.model_fields["task"].is_required()
    if model.get("task") is None and not is_reported:
        yield (
            ("compress", name),
            f"the model `{model_name}` has no task, so what compression costs cannot be measured",
            f"give it one (`models.{model_name}.task`), or leave the artifact as it is",
        )
    if export.get("tower") == "candidate":
        yield (
            ("compress", name),
            "expected an artifact that is measured on its task, received one with `tower: candidate`",
            f"leave it out; `graphbox compress {name}` compares nearest nodes",
        )
