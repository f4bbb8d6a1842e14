"""Faces to PyTorch Geometric: conversion of small graphs, and stores that its loaders read others through.

``stores`` imports PyTorch Geometric; everything else does so only when it is called.
"""
