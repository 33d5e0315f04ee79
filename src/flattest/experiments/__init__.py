"""What is run: tasks, experiments with their expectations, and where they are found."""
