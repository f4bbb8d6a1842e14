"""The section `track`: where figures of a training are sent, besides the run's own store."""

from __future__ import annotations

from graphbox.config.section import Section


class MLflowConfig(Section):
    """An MLflow server or store."""

    uri: str
    """Tracking URI, like `http://host:5000`, or `sqlite:///mlflow.db`."""
    experiment: str = "graphbox"
    """Experiment that runs belong to; made when it is not there."""


class WandbConfig(Section):
    """Weights & Biases; its own environment variables say who you are."""

    project: str = "graphbox"
    """Project that runs belong to."""


class TrackConfig(Section):
    """Trackers that get the figures of trainings too."""

    tensorboard: bool = False
    """Write event files into the folder `tensorboard` of the run; needs `graphbox[tensorboard]`."""
    mlflow: MLflowConfig | None = None
    """Send figures to MLflow; needs `graphbox[mlflow]`."""
    wandb: WandbConfig | None = None
    """Send figures to Weights & Biases; needs `graphbox[wandb]`."""
