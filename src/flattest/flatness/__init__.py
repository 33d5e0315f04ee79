"""What is reported of one network: measurements, certificates, bounds, the flattest ones."""
