// What is asked of every row of a table of logs, column by column.

#include "tables.hpp"

#include "vector.hpp"

namespace KERNEL_TARGET {
namespace {

constexpr std::uint64_t ODD = 0x9E3779B97F4A7C15;
constexpr int BLOCK = 512;  // rows, which stay in the cache

INLINE std::uint64_t mixed(std::uint64_t a) {  // the finaliser of SplitMix64
    a = (a ^ (a >> 30)) * 0xBF58476D1CE4E5B9;
    a = (a ^ (a >> 27)) * 0x94D049BB133111EB;
    return a ^ (a >> 31);
}

}  // namespace

void row_hashes(const double *const *columns, int n, std::int64_t rows, std::uint64_t *found) {
    for (std::int64_t first = 0; first < rows; first += BLOCK) {
        const std::int64_t end = rows - first < BLOCK ? rows : first + BLOCK;
        for (std::int64_t i = first; i < end; ++i) found[i] = ODD;
        for (int j = 0; j < n; ++j)
            for (std::int64_t i = first; i < end; ++i) {
                std::uint64_t bits;
                std::memcpy(&bits, columns[j] + i, sizeof bits);
                bits = bits == std::uint64_t(1) << 63 ? 0 : bits;  // -0.0 is 0.0
                found[i] = mixed(found[i] ^ bits);
            }
    }
}

void digests(const std::uint64_t *hashes, std::int64_t rows, const std::int64_t *starts,
             std::int64_t count, std::uint64_t *found) {
    for (std::int64_t s = 0; s < count; ++s) {
        const std::int64_t end = s + 1 < count ? starts[s + 1] : rows;
        std::uint64_t sum = 0;
        for (std::int64_t i = starts[s]; i < end; ++i) found[i] = mixed((sum += hashes[i]) ^ ODD);
    }
}

void column_ranges(const double *const *columns, int n, const std::int64_t *rows,
                   std::int64_t count, double *low, double *high) {
    for (int j = 0; j < n; ++j) low[j] = high[j] = columns[j][rows[0]];
    std::int64_t starts[BLOCK], ends[BLOCK];  // of rows that stand side by side, as most do
    for (std::int64_t i = 0; i < count;) {
        int runs = 0;
        for (; i < count && runs < BLOCK; ++runs) {
            starts[runs] = rows[i];
            do ++i;
            while (i < count && rows[i] == rows[i - 1] + 1);
            ends[runs] = rows[i - 1] + 1;
        }
        for (int j = 0; j < n; ++j) {
            const double *column = columns[j];
            double least = low[j], most = high[j], numbers = 0;
            V lows = splat(least), highs = splat(most), zeros = splat(0);
            for (int s = 0; s < runs; ++s) {
                std::int64_t k = starts[s];
                const std::int64_t last = ends[s] - WIDTH;
                for (; k <= last; k += k < last && k + WIDTH > last ? last - k : WIDTH) {
                    const V a = load(column + k);  // at the end, some once more
                    lows = choose(a < lows, a, lows), highs = choose(a > highs, a, highs);
                    zeros += a * splat(0);
                }
                for (; k < ends[s]; ++k) {
                    const double a = column[k];
                    least = a < least ? a : least, most = a > most ? a : most;
                    numbers += a * 0;
                }
            }
            for (int l = 0; l < WIDTH; ++l) {
                least = lows[l] < least ? lows[l] : least, most = highs[l] > most ? highs[l] : most;
                numbers += zeros[l];
            }
            low[j] = least + numbers, high[j] = most + numbers;  // not a number where one is not
        }
    }
}

void find_keys(const Keys &keys, const std::uint64_t *wanted, std::int64_t count,
               std::int64_t *found) {
    const std::uint64_t mask = std::uint64_t(keys.slots) - 1;
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint64_t slot = wanted[i] & mask;
        std::int64_t place = keys.table[slot];
        while (place >= 0 && keys.known[place] != wanted[i])
            place = keys.table[slot = (slot + 1) & mask];
        found[i] = place;
    }
}

void enter_keys(const Keys &keys, const std::int64_t *places, std::int64_t count) {
    const std::uint64_t mask = std::uint64_t(keys.slots) - 1;
    for (std::int64_t i = 0; i < count; ++i) {
        std::uint64_t slot = keys.known[places[i]] & mask;
        while (keys.table[slot] >= 0) slot = (slot + 1) & mask;
        keys.table[slot] = std::int32_t(places[i]);
    }
}

}  // namespace KERNEL_TARGET
