"""The buckets of requests that are shared among variants, as docs/endpoints.md describes them."""
MASK = 2**64 - 1
BUCKETS = 10000


def bucket(salt, key):
    h = 0xCBF29CE484222325
    for byte in salt.encode() + b"\0" + key.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        h = ((h ^ (h >> 33)) * factor) & MASK
    return (h ^ (h >> 33)) % BUCKETS


def spread(count):
    """The buckets of the first requests without a key, on one network thread."""
    state = 0
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & MASK
        yield ((state >> 32) * BUCKETS) >> 32
