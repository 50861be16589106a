mr_fuzz(rest_infer SOURCES tests/fuzz/fuzz_rest_infer.c DEPS oip tensor base)
mr_fuzz(pb_infer SOURCES tests/fuzz/fuzz_pb_infer.c DEPS oip tensor base)
