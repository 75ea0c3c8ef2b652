"""What Lograft costs, measured: `python -m benchmarks storage`. How to read it: benchmarks/README.md."""
