"""Real processes under real faults. So far: power loss, and the storage workload that survives it."""
