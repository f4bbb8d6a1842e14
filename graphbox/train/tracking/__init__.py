"""Trackers: services that a training's figures are sent to besides graphbox's own store."""
