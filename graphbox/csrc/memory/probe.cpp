#include "memory/probe.h"

#include <time.h>

#include <array>
#include <chrono>
#include <cstring>

#include "errors/error.h"
#include "memory/buffer.h"
#include "portability/cpu.h"

namespace graphbox {

namespace {

double thread_cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

Seconds random_read_seconds(std::size_t memory_bytes, std::int64_t reads, std::size_t read_bytes) {
  if (read_bytes == 0 || read_bytes % kCacheLineBytes != 0 || memory_bytes < read_bytes || reads < 0) {
    throw Error(ErrorKind::kUsage, "read_bytes must be a multiple of 64 and fit into memory_bytes");
  }
  constexpr std::uint64_t kDistance = 32;
  const Buffer memory(memory_bytes);
  std::memset(memory.data(), 1, memory_bytes);
  const std::uint64_t places = memory_bytes / read_bytes;
  std::array<const std::byte*, kDistance> ahead;
  std::uint64_t state = 0x9E3779B97F4A7C15ULL;
  const auto draw = [&] {  // Steele and Vigna's linear congruential generator: cheaper than the reads
    state = state * 0xD1342543DE82EF95ULL + 1;
    const auto place = static_cast<std::uint64_t>(static_cast<Uint128>(state) * places >> 64);
    const std::byte* const address = memory.data() + place * read_bytes;
    for (std::size_t line = 0; line < read_bytes; line += kCacheLineBytes) {
      prefetch(address + line);
    }
    return address;
  };
  for (const std::byte*& address : ahead) {
    address = draw();
  }
  std::uint64_t sum = 0;
  const double cpu_start = thread_cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  for (std::int64_t read = 0; read < reads; ++read) {
    const std::byte*& address = ahead[static_cast<std::uint64_t>(read) % kDistance];
    for (std::size_t line = 0; line < read_bytes; line += kCacheLineBytes) {
      std::uint64_t word;
      std::memcpy(&word, address + line, sizeof word);
      sum += word;
    }
    address = draw();
  }
  const double cpu = thread_cpu_seconds() - cpu_start;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  volatile std::uint64_t used = sum;  // so that the reads are not optimised away
  static_cast<void>(used);
  return {elapsed.count(), cpu};
}

}  // namespace graphbox
