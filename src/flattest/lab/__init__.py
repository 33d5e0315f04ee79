"""Asking a question of one's own: setups, challenges, scenarios, sweeps, summaries."""
