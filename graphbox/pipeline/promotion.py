"""Promotion of new model versions by the run file's rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graphbox.config import BenchConfig, PromotionRule, load_config
from graphbox.errors import NotFoundError
from graphbox.pipeline.bench import bench_models, with_active
from graphbox.workspace import Comparison, ModelRecord, Workspace, compare


@dataclass(frozen=True)
class Promotion:
    """Decision about a new version.

    Attributes:
        version: its number.
        active: number of the version that is active now.
        rule: the rule that decided.
        reason: why it is active, or is not.
        comparison: the version beside the one that was active before; None where that is itself.
    """

    version: int
    active: int
    rule: PromotionRule
    reason: str
    comparison: Comparison | None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "version": self.version,
            "active": self.active,
            "rule": self.rule,
            "reason": self.reason,
            "comparison": None if self.comparison is None else self.comparison.as_dict(),
        }


def apply_rule(
    workspace: Workspace, name: str, version: int, rule: PromotionRule, *, reason: str | None = None
) -> Promotion:
    """Compare version ``version`` of the model ``name`` with the active one; promote it if ``rule`` says so.

    Args:
        workspace: where it is.
        name: of the model.
        version: a version that was just made.
        rule: when it becomes active.
        reason: where the rule comes from, if not from the run file.

    Raises:
        NotFoundError: there is no such version.
        FormatError: its folder is gone.
    """
    record = workspace.model(name, version)
    if record.active:
        is_only = len(workspace.models(name)) == 1
        known = "it is the only version" if is_only else "it was active already"
        return Promotion(version, version, rule, reason or known, None)
    before = active_version(workspace, name)
    comparison = compare(record, before)
    is_chosen, decided = _decide(record, before, comparison, rule)
    if is_chosen:
        workspace.promote_model(name, version)
    active = version if is_chosen else before.version
    return Promotion(version, active, rule, reason or decided, comparison)


def promote_stage(
    workspace: Workspace, run_id: str, stage: str, rule: PromotionRule | None
) -> dict[str, Promotion]:
    """Apply a rule to the versions that the stage `export` or `compress` of a run has made, once measured.

    Args:
        workspace: where the run is.
        run_id: its id.
        stage: ``export`` or ``compress``.
        rule: instead of those of the run file. By those an artifact that the run compresses is not promoted
            itself.
    """
    record = workspace.run(run_id)
    config = load_config(record.path / "config.yaml", check_files=False)
    versions: Mapping[str, int] = next(
        each.outputs["versions"] for each in record.stages if each.name == stage and each.state == "finished"
    )
    promotions = {}
    for name, version in versions.items():
        measure_beside_active(workspace, [workspace.model(name, version)], config.bench)
        if rule is None and stage == "export" and name in config.compress:
            reason = f"the run compresses it: `graphbox compress {run_id}`"
            promotions[name] = apply_rule(workspace, name, version, "never", reason=reason)
        elif rule is None:
            promotions[name] = apply_rule(workspace, name, version, config.export[name].promote)
        else:
            promotions[name] = apply_rule(workspace, name, version, rule, reason="as asked")
    return promotions


def rule_of_run(workspace: Workspace, record: ModelRecord) -> PromotionRule:
    """Return the rule of the run that made a version; `never` where the run is gone.

    Raises:
        ConfigError: this graphbox cannot read the run file of the run.
    """
    if record.run_id is None:
        return "never"
    try:
        path = workspace.run(record.run_id).path / "config.yaml"
        export = load_config(path, check_files=False).export
    except NotFoundError:
        return "never"
    return export[record.name].promote if record.name in export else "never"


def measure_beside_active(workspace: Workspace, records: Sequence[ModelRecord], config: BenchConfig) -> None:
    """Measure versions of one model, and the active one beside them, at the smallest batch size."""
    smallest = config.model_copy(update={"batch_sizes": (min(config.batch_sizes),)})
    bench_models(with_active(workspace, records), smallest, workspace)


def promotion_now(workspace: Workspace, name: str, noted: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what a run noted of a promotion, as it is now; None where the version was removed.

    Another version may have become active since.
    """
    record = next((each for each in workspace.models(name) if each.version == noted["version"]), None)
    if record is None:
        return None
    active = active_version(workspace, name)
    if active.version == noted["active"]:
        return dict(noted)
    comparison = None if record.active else compare(record, active).as_dict()
    return {**noted, "active": active.version, "reason": "promoted since", "comparison": comparison}


def active_version(workspace: Workspace, name: str) -> ModelRecord:
    """Return the active version of a model, even if its folder is gone.

    Raises:
        NotFoundError: there is no such model.
    """
    for record in workspace.models(name):
        if record.active:
            return record
    raise NotFoundError(f"there is no model `{name}`", where=str(workspace.root))


def _decide(
    record: ModelRecord, active: ModelRecord, comparison: Comparison, rule: PromotionRule
) -> tuple[bool, str]:
    if rule == "never":
        return False, "`promote: never`"
    if rule == "always":
        return True, "`promote: always`"
    if record.parent == active.version:
        return True, "it was compressed from the active version, within `max_drop`"
    if comparison.not_comparable is not None:
        return False, f"`promote: if_better`, but {comparison.not_comparable}"
    relation = "higher" if comparison.is_better else "not higher"
    return comparison.is_better, f"`promote: if_better`, and {comparison.metric} is {relation}"
