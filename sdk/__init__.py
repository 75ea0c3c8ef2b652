"""The Python SDK: Producer, Consumer and Admin. Not built yet."""
