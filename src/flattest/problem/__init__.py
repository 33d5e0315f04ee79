"""What is trained and measured: data, networks, losses, their files and randomness."""
