"""What Triton 2.51 (r24.10) with its ONNX Runtime and identity backends did when it was last beside the bench by hand: a
machine with two virtual CPUs, server on one and client on the other, medians of 3 to 5 runs, noise of 15 %. Quoted where
no Triton can be run; never compared with figures of another run."""

EARLIER = {
    "rest-json": "12,900/s, 72 µs of CPU",
    "rest-binary": "14,000/s, 66 µs of CPU",
    "grpc-streams": "18,300/s, 38 µs of CPU at 64 streams",
    "grpc": "14,300/s, 68 µs of CPU",
    "latency-json": "p50 148 µs",
    "latency-binary": "p50 132 µs",
    "latency-grpc": "p50 154 µs",
    "big-onnx-rest": "132/s, p50 6.9 ms",
    "big-onnx-grpc": "168/s, p50 5.3 ms",
    "batching": "23,600/s, mean batch 24",
    "lone-client": "p50 793 µs, unbatched 122 µs",
    "convolutional": "161 to 190/s",
    "load": "0.65 to 1.3 s; 804 to 1,732 MB loaded, 307 to 1,444 MB after unloading, over 5 cycles",
    "start-empty": "70 ms, 32 MB",
    "start-small": "94 ms, 61 MB",
}
