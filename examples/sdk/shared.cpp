/* The same as shared.c in C++: an inference whose tensors are in memory that is shared with the server.
 *
 *   c++ -std=c++17 shared.cpp $(pkg-config --cflags --libs millrace) \
 *      -Wl,-rpath,$(pkg-config --variable=libdir millrace) -o shared
 *   ./shared simple http://unix:/run/millrace.sock
 */
#include <iostream>
#include <millrace/client.hpp>
#include <numeric>

int main(int argc, char **argv)
{
    const uint64_t bytes = 16 * sizeof(int32_t);

    if (argc != 3) {
        std::cerr << "usage: shared MODEL URL\n";
        return 2;
    }
    try {
        const millrace::Client client({argv[2]});
        const millrace::Memory memory(4096);
        int32_t *numbers = memory.at<int32_t>(0, 16), *sum = memory.at<int32_t>(bytes, 16);
        std::iota(numbers, numbers + 16, 0);

        const millrace::Result result =
            client.infer(millrace::Request(argv[1])
                             .input("INPUT0", MR_DTYPE_INT32, {1, 16}, numbers, bytes)
                             .input("INPUT1", MR_DTYPE_INT32, {1, 16}, numbers, bytes)
                             .output("OUTPUT0", sum, bytes)
                             .memory(memory));
        const millrace::Output out = result.output("OUTPUT0");
        std::cout << out.name << (out.data == sum ? " in its place:" : ":");
        for (int i = 0; i < 16; i++) {
            std::cout << ' ' << out.as<int32_t>()[i];
        }
        std::cout << '\n';
    } catch (const millrace::Error &error) {
        std::cerr << error.what() << '\n';
        return 1;
    }
    return 0;
}
