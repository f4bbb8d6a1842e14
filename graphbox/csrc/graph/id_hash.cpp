#include "graph/id_hash.h"

#include <bit>
#include <cstring>

namespace graphbox {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr std::uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr std::uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr std::uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr std::uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

GRAPHBOX_INLINE std::uint64_t read_64(const unsigned char* data) {
  std::uint64_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

GRAPHBOX_INLINE std::uint64_t read_32(const unsigned char* data) {
  std::uint32_t value;
  std::memcpy(&value, data, sizeof value);
  return value;
}

GRAPHBOX_INLINE std::uint64_t round(std::uint64_t lane, std::uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

GRAPHBOX_INLINE std::uint64_t join(std::uint64_t hash, std::uint64_t lane) {
  return (hash ^ round(0, lane)) * kPrime1 + kPrime4;
}

}  // namespace

std::uint64_t hash_bytes(const void* data, std::size_t bytes) {
  const auto* next = static_cast<const unsigned char*>(data);
  const unsigned char* const end = next + bytes;
  std::uint64_t hash = kPrime5;
  if (bytes >= 32) {
    std::uint64_t lanes[4] = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1};
    do {
      for (int lane = 0; lane < 4; ++lane) {
        lanes[lane] = round(lanes[lane], read_64(next + 8 * lane));
      }
      next += 32;
    } while (end - next >= 32);
    hash = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) + std::rotl(lanes[3], 18);
    for (const std::uint64_t lane : lanes) {
      hash = join(hash, lane);
    }
  }
  hash += bytes;
  for (; end - next >= 8; next += 8) {
    hash = std::rotl(hash ^ round(0, read_64(next)), 27) * kPrime1 + kPrime4;
  }
  for (; end - next >= 4; next += 4) {
    hash = std::rotl(hash ^ read_32(next) * kPrime1, 23) * kPrime2 + kPrime3;
  }
  for (; next != end; ++next) {
    hash = std::rotl(hash ^ *next * kPrime5, 11) * kPrime1;
  }
  hash = (hash ^ hash >> 33) * kPrime2;
  hash = (hash ^ hash >> 29) * kPrime3;
  return hash ^ hash >> 32;
}

}  // namespace graphbox
