"""Stage `promote`: the versions that a run made are compared with the active ones, and replace them by rule.

It is the last stage: until then nothing that is served changes, except that the first version of a name is
active at once. Where the first run of a name compresses it, the compressed version follows without a rule.
"""

from __future__ import annotations

from typing import Any

from graphbox.config import RunConfig
from graphbox.pipeline.promotion import Promotion, apply_rule
from graphbox.pipeline.stage import Stage, StageContext, StageResult


def _run(context: StageContext) -> StageResult:
    # Of a model that is compressed, the compressed version is the result of the run.
    exported: dict[str, int] = context.output("export", "versions")
    compressed: dict[str, int] = {}
    if "compress" in context.finished:
        compressed = context.output("compress", "versions")
    promotions: dict[str, Promotion] = {}
    for name, version in {**exported, **compressed}.items():
        context.stop.check()
        there = {record.version for record in context.workspace.models(name)}
        if version not in there:  # removed since
            continue
        rule = context.config.export[name].promote
        is_first = rule == "never" and there == {exported[name], version}
        promotions[name] = apply_rule(
            context.workspace,
            name,
            version,
            "always" if is_first else rule,
            reason="it comes from the first run of that name" if is_first else None,
        )
    active = ", ".join(f"{name} version {promotion.active}" for name, promotion in promotions.items())
    report = {name: promotion.as_dict() for name, promotion in promotions.items()}
    return StageResult(f"active: {active}", report={"promotion": report})


def _reads(config: RunConfig) -> dict[str, Any]:
    return {"export": {name: {"promote": export.promote} for name, export in config.export.items()}}


STAGE = Stage(
    "promote",
    _run,
    wanted=lambda config: bool(config.export),
    section="export",
    reads=_reads,
    needs=("export", "compress"),
)
