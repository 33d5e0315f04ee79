"""∇²L as an operator, and what is computed of it: diagonal, trace, eigenvalues, spectrum."""
