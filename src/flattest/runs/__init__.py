"""Runs on disk, and how they are done: store, plan, work, cluster, progress, results."""
