// Measured rates of this machine's memory: the bound that benchmarks are compared with.
#pragma once

#include <cstddef>
#include <cstdint>

namespace graphbox {

struct Seconds {
  double wall;
  double cpu;  // of the calling thread: the number to trust when others use the processor too
};

// Time of one thread for `reads` reads of `read_bytes` (a multiple of 64) at random places of `memory_bytes`, each
// prefetched well ahead.
Seconds random_read_seconds(std::size_t memory_bytes, std::int64_t reads, std::size_t read_bytes);

// The same for copies of such reads to a place of `target_bytes`, written in order and past the caches.
Seconds random_copy_seconds(std::size_t memory_bytes, std::int64_t copies, std::size_t copy_bytes,
                            std::size_t target_bytes);

}  // namespace graphbox
