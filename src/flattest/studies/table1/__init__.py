"""Table 1 of wen2023: four architectures, two questions each"""
