"""The broker: leads and follows partitions and serves clients over gRPC. Not built yet."""
