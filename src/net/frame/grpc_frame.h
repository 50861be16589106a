/* Pure parts of gRPC: timeouts, percent-encoding, encodings, message prefixes. */
#ifndef MR_NET_GRPC_FRAME_H
#define MR_NET_GRPC_FRAME_H

#include "base/buf.h"
#include "net/grpc.h"

#define MR_GRPC_PREFIX_BYTES 5

/** Most bytes of a percent-encoded message of n bytes. */
#define MR_GRPC_ENCODED_MAX(n) ((n)*3)
/** Percent-encode for grpc-message: everything but printable ASCII, '%', and blanks at its ends. Returns the length. */
size_t mr_grpc_percent_encode(mr_str in, char *out);
/** One name of grpc-encoding; false if it is unknown. */
bool mr_grpc_encoding_parse(mr_str name, enum mr_grpc_compression *out);
/** Bit mask (1 << mr_grpc_compression) of a grpc-accept-encoding value; identity is always set. */
unsigned mr_grpc_accept_parse(mr_str value);
mr_str mr_grpc_encoding_name(enum mr_grpc_compression c);

/** Flag and length. */
struct mr_grpc_prefix {
    bool is_compressed;
    uint32_t length;
};
/** False when the flag byte is neither 0 nor 1. */
bool mr_grpc_prefix_parse(const uint8_t p[MR_GRPC_PREFIX_BYTES], struct mr_grpc_prefix *out);
void mr_grpc_prefix_write(uint8_t p[MR_GRPC_PREFIX_BYTES], bool is_compressed, uint32_t length);

#endif
