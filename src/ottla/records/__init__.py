"""Record batches: header, build, read, validate, compress. No I/O."""
