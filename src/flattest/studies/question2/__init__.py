"""Question 2: what in 1-SAM memorizes? The same steps where no perturbation crosses a kink"""
