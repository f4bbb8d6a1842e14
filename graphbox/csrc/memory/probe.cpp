#include "memory/probe.h"

#include <time.h>

#include <array>
#include <chrono>
#include <cstring>

#include "errors/error.h"
#include "memory/buffer.h"
#include "portability/cpu.h"
#include "store/gather.h"

namespace graphbox {

namespace {

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

namespace {

constexpr std::uint64_t kDistance = 32;

// Gives random places of some memory, each asked for kDistance calls before it is given.
class RandomPlaces {
 public:
  RandomPlaces(const Buffer& memory, std::size_t memory_bytes, std::size_t place_bytes)
      : memory_(memory.data()), places_(memory_bytes / place_bytes), place_bytes_(place_bytes) {
    for (const std::byte*& address : ahead_) {
      address = draw();
    }
  }

  const std::byte* next(std::int64_t number) const { return ahead_[static_cast<std::uint64_t>(number) % kDistance]; }
  void replace(std::int64_t number) { ahead_[static_cast<std::uint64_t>(number) % kDistance] = draw(); }

 private:
  const std::byte* draw() {  // Steele and Vigna's linear congruential generator: cheaper than the reads
    state_ = state_ * 0xD1342543DE82EF95ULL + 1;
    const auto place = static_cast<std::uint64_t>(static_cast<Uint128>(state_) * places_ >> 64);
    const std::byte* const address = memory_ + place * place_bytes_;
    for (std::size_t line = 0; line < place_bytes_; line += kCacheLineBytes) {
      prefetch(address + line);
    }
    return address;
  }

  const std::byte* memory_;
  std::uint64_t places_;
  std::size_t place_bytes_;
  std::uint64_t state_ = 0x9E3779B97F4A7C15ULL;
  std::array<const std::byte*, kDistance> ahead_;
};

Buffer touched_memory(std::size_t bytes) {
  Buffer memory(bytes);
  std::memset(memory.data(), 1, bytes);
  return memory;
}

void check_sizes(std::size_t memory_bytes, std::int64_t reads, std::size_t read_bytes) {
  if (read_bytes == 0 || read_bytes % kCacheLineBytes != 0 || memory_bytes < read_bytes || reads < 0) {
    throw Error(ErrorKind::kUsage, "read_bytes must be a multiple of 64 and fit into memory_bytes");
  }
}

template <typename Work>
Seconds timed(const Work& work) {
  const double cpu_start = thread_cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  work();
  const double cpu = thread_cpu_seconds() - cpu_start;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  return {elapsed.count(), cpu};
}

}  // namespace

Seconds random_read_seconds(std::size_t memory_bytes, std::int64_t reads, std::size_t read_bytes) {
  check_sizes(memory_bytes, reads, read_bytes);
  const Buffer memory = touched_memory(memory_bytes);
  RandomPlaces places(memory, memory_bytes, read_bytes);
  std::uint64_t sum = 0;
  const Seconds seconds = timed([&] {
    for (std::int64_t read = 0; read < reads; ++read) {
      const std::byte* const address = places.next(read);
      for (std::size_t line = 0; line < read_bytes; line += kCacheLineBytes) {
        std::uint64_t word;
        std::memcpy(&word, address + line, sizeof word);
        sum += word;
      }
      places.replace(read);
    }
  });
  volatile std::uint64_t used = sum;  // so that the reads are not optimised away
  static_cast<void>(used);
  return seconds;
}

Seconds random_copy_seconds(std::size_t memory_bytes, std::int64_t copies, std::size_t copy_bytes,
                            std::size_t target_bytes) {
  check_sizes(memory_bytes, copies, copy_bytes);
  if (target_bytes < copy_bytes) {
    throw Error(ErrorKind::kUsage, "target_bytes must hold a copy");
  }
  const Buffer memory = touched_memory(memory_bytes);
  const Buffer target = touched_memory(target_bytes);
  RandomPlaces places(memory, memory_bytes, copy_bytes);
  const std::size_t last = target_bytes - copy_bytes;
  std::size_t written = 0;
  return timed([&] {
    for (std::int64_t copy = 0; copy < copies; ++copy) {
      copy_streamed({places.next(copy), target.data() + written, copy_bytes});
      written = written + copy_bytes <= last ? written + copy_bytes : 0;
      places.replace(copy);
    }
    finish_copies(true);
  });
}

}  // namespace graphbox
