"""What Lograft costs, measured: `python -m benchmarks storage`. How to read it: benchmarks/README.md."""

from lograft.contract.process import tune_grpc

# As our own processes run.
tune_grpc()
