"""The orbit of a network: all rescalings that leave its function as it is, and the flattest."""
