"""Generated from the proto files beside it: the wire, disk and metadata formats."""
