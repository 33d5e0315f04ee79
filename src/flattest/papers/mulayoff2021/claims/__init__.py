"""The numbered statements of mulayoff2021."""
