"""Our own questions, found, run, stored and shown exactly as papers are."""
