"""The numbered statements of vardhan2026."""
