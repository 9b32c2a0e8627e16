// Reads memory once, and does nothing else: a ceiling for passes that read all weights.
#include <cstdint>

extern "C" std::uint64_t sbd_read(const std::uint64_t* words, std::int64_t count, int threads) {
    constexpr std::int64_t LINE = 8, AHEAD = 32 * LINE;  // words of a cache line, and how far to fetch ahead
    const std::int64_t lines = count / LINE;
    std::uint64_t total = 0;
#pragma omp parallel for num_threads(threads) reduction(+ : total) schedule(static)
    for (std::int64_t line = 0; line < lines; ++line) {
        const std::uint64_t* at = words + line * LINE;
        __builtin_prefetch(at + AHEAD);
        std::uint64_t sum = 0;
        for (std::int64_t i = 0; i < LINE; ++i) sum += at[i];
        total += sum;
    }
    return total;
}
