"""The numbered statements of wen2023."""
