"""How flat a network is, in a way that no rescaling can fake."""
